"""In each probe the answer follows from the words before it."""

from collections import Counter
from itertools import pairwise

from tests.data.probe_examples import bare, make, sample


def test_recall():
    probe = make("recall")
    for words in sample(probe):
        shown, rest = words[:8], words[8:]
        values = dict(zip(shown[::2], shown[1::2], strict=True))
        assert len(values) == len(set(values.values())) == 4
        assert all(key.startswith("k") and value.startswith("v") for key, value in values.items())
        predicted = {before: word for before, word in pairwise(rest) if word.startswith("[")}
        assert predicted == {key: f"[{value}]" for key, value in values.items()}
        assert [word for word in rest if word.startswith("k")] == list(predicted), (
            "a key stands where it is not asked"
        )


def test_a_smaller_power_of_recall_has_earlier_labels():
    def gap(power):
        at = [
            words.index(next(w for w in words if w.startswith("[")))
            for words in sample(make("recall", power=power, pairs=1))
        ]
        return sum(at) / len(at)

    assert gap(0.01) + 2 < gap(1.0) < gap(4.0)
    places = Counter(
        words.index(next(w for w in words if w.startswith("[")))
        for words in sample(make("recall", power=1.0, pairs=1), count=2200)
    )
    assert set(places) == set(range(3, 24, 2)) and min(places.values()) > 140, (
        "power 1 is uniform over the 11 slots"
    )


def test_recall_with_blanks_as_filler():
    for words in sample(make("recall", filler="blank")):
        assert Counter(words)["."] == 24 - 4 * 4 and words[-1] != "[.]"


def test_induction():
    for words in sample(make("induction")):
        assert words.count("*") == 2 and words[-2] == "*"
        assert (
            words[-1] == f"[{words[words.index('*') + 1]}]"
            and sum(word.startswith("[") for word in words) == 1
        )
    firsts = {words.index("*") for words in sample(make("induction"))}
    assert firsts == set(range(9)), "the mark stands anywhere but where its word would be a mark"


def test_copy_reverse_and_sort():
    def number(word):
        return int(word[1:])

    for name, answer in {
        "copy": lambda given: given,
        "reverse": lambda given: given[::-1],
        "sort": lambda given: sorted(given, key=number),
    }.items():
        for words in sample(make(name)):
            given, bar, predicted = words[:5], words[5], words[6:]
            assert bar == "|" and predicted == [f"[{word}]" for word in answer(given)]


def test_selective_copy():
    places = set()
    for words in sample(make("selective_copy")):
        given, bar, predicted = words[:12], words[12], words[13:]
        assert (
            bar == "|"
            and predicted == [f"[{word}]" for word in given if word != "."]
            and len(predicted) == 3
        )
        places |= {i for i, word in enumerate(given) if word != "."}
    assert places == set(range(12))
    assert {len(words) for words in sample(make("selective_copy", test_length=30), "test", 5)} == {
        34
    }


def test_addition():
    for answer, order in {"reversed": -1, "plain": 1}.items():
        for words in sample(make("addition", answer=answer)):
            first, second = (int("".join(component)) for component in (words[:3], words[4:7]))
            total = int("".join(bare(words[8:])[::order]))
            assert (
                (words[3], words[7]) == ("+", "=") and first + second == total and len(words) == 12
            )
            assert all(word.startswith("[") for word in words[8:]) and not any(
                "[" in word for word in words[:8]
            )
    carries = [words for words in sample(make("addition", length=1)) if words[-1] == "[1]"]
    assert carries and all(int(w[0]) + int(w[2]) >= 10 for w in carries)


def test_parity():
    for words in sample(make("parity")):
        ones = words[:6].count("1")
        assert words[6:] == ["|", "[odd]" if ones % 2 else "[even]"]
    for words in sample(make("parity", steps=True)):
        bits, predicted = words[::2], words[1::2]
        assert predicted == [
            "[odd]" if bits[: i + 1].count("1") % 2 else "[even]" for i in range(6)
        ]


def test_dyck():
    depths = set()
    for words in sample(make("dyck")):
        stack = []
        for word in words:
            if word in ("(", "[", "{"):
                stack.append({"(": "[)]", "[": "[]]", "{": "[}]"}[word])
                depths.add(len(stack))
            else:
                assert word == stack.pop(), "which one closes follows from what is open"
        assert not stack and len(words) == 14
    assert depths == {1, 2, 3}


def test_dyck_has_names_for_any_number_of_types():
    assert make("dyck", types=6).words() == [
        "(",
        "[",
        "{",
        "<",
        "(4",
        "(5",
        ")",
        "]",
        "}",
        ">",
        "4)",
        "5)",
    ]
