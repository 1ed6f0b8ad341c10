"""A mixture has its parts in proportion to the weights on every layout, each prepared once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

from xformer_kit import compose
from xformer_kit.data import Examples, prepare
from xformer_kit.data.buckets import LengthBatches
from xformer_kit.data.mixing import MixedExamples, proportional_counts
from xformer_kit.data.order import GlobalBatches
from xformer_kit.data.preparation.training_data import TrainingData
from xformer_kit.objective import Objective
from xformer_kit.registry import ConfigError

ONE = "must be a text or pairs, no mixture and no probe, which has its own words"


class Numbers:
    """A split of numbers, examples of different lengths."""

    def __init__(self, first: int, lengths):
        self.first, self.lengths = first, np.asarray(lengths).reshape(len(lengths), -1)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return {"tokens": np.array([self.first + i])}


def mix(*sizes, weights=None, temperature=1.0):
    parts = {
        "abcdef"[k]: Numbers(1000 * k, np.arange(size) % 7 + 1) for k, size in enumerate(sizes)
    }
    by_name = weights and dict(zip(parts, weights, strict=True))
    return MixedExamples(parts, by_name, temperature)


def numbers(data, epoch, seed=0):
    """Returns the numbers of an epoch."""
    return [
        int(data[row]["tokens"][0])
        for row in data.example_indices(seed, epoch, np.arange(len(data)))
    ]


def test_proportional_counts_have_the_expected_values():
    assert proportional_counts({"a": 2, "b": 1}, 1.0, 9) == {"a": 6, "b": 3}
    # 6.67 and 3.33: the larger remainder
    assert proportional_counts({"a": 2, "b": 1}, 1.0, 10) == {"a": 7, "b": 3}
    # square roots: 4 to 1
    assert proportional_counts({"a": 16, "b": 1}, 2.0, 10) == {"a": 8, "b": 2}
    assert proportional_counts({"a": 1e6, "b": 1}, 1e9, 10) == {"a": 5, "b": 5}
    assert proportional_counts({"a": 10, "b": 90}, 1.0, 100) == {"a": 10, "b": 90}


@pytest.mark.extended
@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.data())
def test_an_epoch_has_exactly_the_counts_of_each_part(sizes, data):
    weights = data.draw(st.lists(st.floats(0.5, 4), min_size=len(sizes), max_size=len(sizes)))
    n = sum(sizes)
    quotas = [n * w / sum(weights) for w in weights]
    if min(quotas) < 1:
        return
    mixture = mix(*sizes, weights=weights)
    for epoch in range(3):
        counts = np.bincount(np.array(numbers(mixture, epoch)) // 1000, minlength=len(sizes))
        assert counts.tolist() == list(mixture.counts.values())
        assert counts.tolist() == mixture.part_counts(np.arange(n)).tolist()
        assert counts.sum() == n and (abs(counts - quotas) < 1).all()


def test_a_weight_that_gives_no_example_is_refused():
    with pytest.raises(ConfigError) as error:
        mix(4, 4, weights=(1e6, 1))
    assert (
        str(error.value)
        == "data.weights: must give each corpus an example in the 8 of an epoch; b gets none. Give"
        " it a larger weight, or leave it out."
    )


def test_without_weights_an_epoch_is_every_example_once():
    mixture = mix(30, 7, 3)
    every = [*range(30), *range(1000, 1007), *range(2000, 2003)]
    assert sorted(numbers(mixture, 0)) == sorted(numbers(mixture, 5)) == every
    others = numbers(mixture, 1), numbers(mixture, 0, seed=1)
    assert numbers(mixture, 0) not in others


def test_no_example_of_a_part_is_repeated_before_all_have_occurred():
    mixture = mix(11, 29, weights=[3, 1])  # 30 of 11, and 10 of 29, in each epoch
    assert list(mixture.counts.values()) == [30, 10]
    drawn = [number for epoch in range(9) for number in numbers(mixture, epoch)]
    for first, size in ((0, 11), (1000, 29)):
        own = [number for number in drawn if first <= number < first + 1000]
        rounds = [own[i : i + size] for i in range(0, len(own) - size, size)]
        assert all(sorted(order) == list(range(first, first + size)) for order in rounds)
        assert len({*map(tuple, rounds)}) == len(rounds)  # each in another order


def test_the_order_of_a_part_does_not_depend_on_other_parts():
    two, three = mix(20, 20), mix(20, 20, 5)
    assert [x for x in numbers(two, 3) if x < 1000] == [x for x in numbers(three, 3) if x < 1000]


def test_batches_of_a_mixture_are_the_same_on_every_layout():
    mixture = mix(33, 9, weights=[1, 2])
    batches, examples = GlobalBatches(42, 12, seed=5), Examples(mixture, None, 5)
    every = [
        [key + batches.epoch(step) * 42 for key in batches.micro_batch(step, 0)]
        for step in range(7)
    ]
    for accumulate, world in ((1, 1), (3, 2), (2, 1), (1, 4)):
        for step in range(7):
            places = [
                (micro, accumulate, rank, world)
                for micro in range(accumulate)
                for rank in range(world)
            ]
            parts = [batches.micro_batch(step, *place) for place in places]
            assert [k + batches.epoch(step) * 42 for part in parts for k in part] == every[step]
    later = [examples[key]["tokens"][0] for key in every[6]]  # without those before
    assert later == [
        mixture[mixture.example_indices(5, 2, key % 42)]["tokens"][0] for key in every[6]
    ]


@pytest.mark.extended
@pytest.mark.parametrize("weights", [None, [1, 1, 1], [5, 1, 3]])
@pytest.mark.parametrize("one_stream", [False, True])
def test_length_batches_of_a_mixture_hold_at_most_their_tokens_in_every_epoch(weights, one_stream):
    draw = np.random.default_rng(0)
    parts = {
        name: Numbers(0, draw.integers(1, 30, (size, 2)))
        for name, size in (("a", 400), ("b", 90), ("c", 301))
    }
    mixture = MixedExamples(parts, weights and dict(zip(parts, weights, strict=True)), 1.0)
    batches = LengthBatches(mixture.lengths, 512, 3, one_stream, mixture)
    size = mixture.lengths.sum(1) if one_stream else mixture.lengths.max(1)
    for epoch in range(6):
        steps = [
            batches[step] for step in range(epoch * batches.count, (epoch + 1) * batches.count)
        ]
        for places in steps:
            rows = mixture.example_indices(3, epoch, places)
            assert len(rows) * size[rows].max() <= 512
        places = np.concatenate(steps)
        assert len(np.unique(places)) == len(places) == len(mixture) - batches.dropped
    plain = LengthBatches(mixture.lengths, 512, 3, one_stream)
    assert batches.count >= plain.count and (weights is not None or batches.count == plain.count)


@pytest.mark.extended
@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(0, 99), st.data())
def test_max_sizes_bounds_the_sizes_of_every_epoch(sizes, seed, data):
    weights = data.draw(st.lists(st.floats(0.5, 4), min_size=len(sizes), max_size=len(sizes)))
    if min(proportional_counts(dict(enumerate(weights)), 1.0, sum(sizes)).values()) == 0:
        return
    mixture = mix(*sizes, weights=weights)
    lengths = np.random.default_rng(seed).integers(1, 50, sum(sizes))
    bound = np.sort(mixture.max_sizes(lengths))
    for epoch in range(8):
        assert (
            np.sort(lengths[mixture.example_indices(seed, epoch, np.arange(sum(sizes)))]) <= bound
        ).all()


def make_config(folder, *words):
    for name, letters in (("prose", "abc "), ("code", "xyz ")):
        (folder / f"{name}.txt").write_text(
            "".join(letters[i % 4] for i in range(4000 if name == "prose" else 1500))
        )
        (folder / f"{name}.tsv").write_text(
            "".join(f"{letters[i % 3] * (i % 9 + 1)}{i}\t{name} {i}\n" for i in range(200))
        )
    return composed(folder, words)


def composed(folder, words):
    return compose([*words, f"data.cache={folder}/cache", "logger=none"])


def text_words(folder, kind="text", end="txt"):
    return [
        "data=mixture",
        (
            f"data.of={{prose: {{name: {kind}, path: {folder}/prose.{end}}}, code: {{name: {kind},"
            f" path: {folder}/code.{end}}}}}"
        ),
        "data.seq_len=16",
    ]


@pytest.fixture
def files(tmp_path):
    make_config(tmp_path)
    return tmp_path


def test_prepared_parts_are_shared_with_runs_on_one_part(files):
    words = [*text_words(files), "tokenizer=byte"]
    prepared = prepare(make_config(files, *words))
    metas = sorted((files / "cache").glob("*/meta.json"))
    assert len(metas) == 2
    part = ["data=text", f"data.path={files}/code.txt"]
    code_only = prepare(make_config(files, *part, "tokenizer=byte", "data.seq_len=16"))
    assert sorted((files / "cache").glob("*/meta.json")) == metas
    assert len(prepared.train) == sum(map(len, prepared.train.parts.values()))
    assert len(prepared.train.parts["code"]) == len(code_only.train)
    weighted = prepare(make_config(files, *words, "data.weights={prose: 1, code: 3}"))
    assert sorted((files / "cache").glob("*/meta.json")) == metas  # weights need no preparation
    assert weighted.train.counts["code"] == round(len(weighted.train) * 3 / 4)
    swapped = prepare(make_config(files, *(w.replace("prose: {", "other: {") for w in words)))
    assert len({prepared.fingerprint, code_only.fingerprint, swapped.fingerprint}) == 3


def test_splits_that_only_some_parts_have_are_those_of_these_parts(files):
    """COGS has the split gen, all pairs of which are in the mixture."""
    line = "A cat {}.\tcat ( x _ 1 )\t{}\n"
    (files / "cogs").mkdir()
    for name, count in (("train", 40), ("dev", 5), ("test", 5), ("gen", 7)):
        (files / "cogs" / f"{name}.tsv").write_text(
            "".join(line.format("ran " * i, name) for i in range(1, count + 1))
        )
    of = (
        f"data.of={{made: {{name: cogs, path: {files}/cogs}}, code: {{name: tsv, path:"
        f" {files}/code.tsv}}}}"
    )
    words = ["data=mixture", of, "data.seq_len=128", "data.too_long=drop", "tokenizer=byte"]
    prepared = prepare(composed(files, [*words, "task=seq2seq", "model=encoder_decoder"]))
    assert {name: len(split) for name, split in prepared.other_splits.items()} == {"gen": 7}
    assert list(prepared.other_splits["gen"].parts) == ["made"]
    assert list(prepared.valid.parts) == ["made", "code"]


def test_one_tokenizer_is_fitted_on_all_parts(files):
    prepared = prepare(make_config(files, *text_words(files), "tokenizer=char"))
    assert {prepared.tokenizer.decode([i]) for i in range(prepared.tokenizer.vocab_size)} == set(
        "abcxyz "
    )
    for name, letters in (("prose", "abc "), ("code", "xyz ")):
        part = prepared.valid.parts[name]
        assert set(prepared.tokenizer.decode(part[0]["tokens"].tolist())) <= set(letters)
    (files / "code.txt").write_text("xyzXYZ " * 300)
    assert prepare(composed(files, [*text_words(files), "tokenizer=char"])).fingerprint != (
        prepared.fingerprint
    )


def test_a_mixture_of_pairs_counts_dropped_pairs_per_part(files):
    with open(files / "code.tsv", "a") as file:
        file.write("".join(f"{'x' * 90}{i}\ttoo long\n" for i in range(20)))
    words = [
        *text_words(files, "tsv", "tsv"),
        "task=seq2seq",
        "model=encoder_decoder",
        "tokenizer=byte",
    ]
    words = [*words, "data.seq_len=32", "data.too_long=drop", "data.batch_tokens=256"]
    config = compose([*words, f"data.cache={files}/cache", "data.weights={prose: 1, code: 2}"])
    prepared = prepare(config)
    assert sum(prepared.dropped.values()) == 20 and {
        key.split("/")[0] for key in prepared.dropped
    } == {"code"}
    data = TrainingData(config, prepared, Objective())
    counts = data.part_counts(2 * data.batches.count)
    assert list(counts) == ["prose", "code"] and sum(counts.values()) == 2 * (
        len(prepared.train) - data.batches.dropped
    )
    assert abs(counts["code"] - 2 * counts["prose"]) <= 3 * 2 * data.batches.dropped + 4
    batches = data.valid_batches(8)
    # a few batches cover both parts
    assert {part for part, _ in batches[:2]} == {"prose", "code"}
    assert sorted(i for _, batch in batches for i in batch) == list(range(len(prepared.valid)))
    spans = prepared.valid.spans()
    assert all(set(batch) <= set(spans[part]) for part, batch in batches)


def test_bytes_per_token_are_those_of_all_parts_together(files):
    prepared = prepare(make_config(files, *text_words(files), "tokenizer=char"))
    parts = prepared.valid.parts.values()
    assert prepared.valid.bytes_per_token == pytest.approx(
        sum(p.bytes for p in parts) / sum(p.tokens - 1 for p in parts)
    )


def faults(*words):
    return refused(["data=mixture", *words])


def test_faults_of_a_mixture_have_the_path_of_the_part(files):
    text = f"{{name: text, path: {files}/prose.txt}}"
    pair = f"{{name: tsv, path: {files}/code.tsv}}"
    assert faults() == [
        "data.of: corpus 'mixture' needs this option. Give it by name, such as {prose: {name:"
        " pydoc}, code: {name: stdlib_code}}."
    ]
    assert faults("data.of={}") == [
        "data.of: must name at least one corpus; got {}. Try {prose: {name: pydoc}, code: {name:"
        " stdlib_code}}."
    ]
    assert faults(f"data.of={{a: {text}, b: {pair}}}") == [
        "data.of: must be texts or pairs; got text from a, pairs from b. Leave one of the two out."
    ]
    assert faults(f"data.of={{a: {text}, b: {{name: recall}}}}") == [
        f"data.of.b: {ONE}; got recall."
    ]
    assert faults(f"data.of={{a: {{name: mixture, of: {{b: {text}}}}}}}") == [
        f"data.of.a: {ONE}; got mixture."
    ]
    assert faults(f"data.of={{a: {{name: text, path: {files}/pose.txt}}}}") == [
        f"data.of.a.path: no file or directory has this name; got '{files}/pose.txt'. Did you mean"
        " 'prose.txt'? Give a text file."
    ]
    assert faults(
        f"data.of={{a: {{name: tsv, path: {files}/code.tsv, valid_path: {files}/prose.tsv, valid:"
        " 0.1}}",
    ) == [
        "data.of.a.valid: is a share of the training data, and data.of.a.valid_path gives a split."
        " Leave one of them out."
    ]
    assert faults(f"data.of={{a: {text}, b: {{name: pydco}}}}", "data.weights={a: 1, c: 2}") == [
        "data.of.b: no corpus is called 'pydco'. Did you mean 'pydoc'? Known: "
        + ", ".join(sorted(corpora()))
        + "."
    ]
    assert faults(
        f"data.of={{a: {text}, b: {text}}}", "data.weights={a: 0, c: 2}", "data.temperature=0"
    ) == [
        "data.temperature: must be above 0; got 0. 1 takes the weights as they are.",
        "data.weights: must give a weight to each corpus of data.of, and to no other; got a, c, and"
        " data.of has a, b. null is by size.",
        "data.weights.a: must be above 0; got 0. Leave the corpus out of data.of for none of it.",
    ]
    assert faults(f"data.of={{a: {text}}}", "data.weights={a: much}") == [
        "data.weights.a: must be a number; got 'much'."
    ]
    assert faults(f"data.of={{a/b: {text}}}") == [
        "data.of: must give each corpus a name of letters, digits and _, for its figures;"
        " got 'a/b'. Try part_1."
    ]
    assert faults(f"data.of={{a: {pair}}}")[0].startswith(
        "task: 'language_modeling' learns from text or labelled, and data=mixture gives pairs."
        " Set data.of={...} of text. Known for it: "
    )
    assert faults(f"data.of={{a: {text}}}", "data.documents=true")[0].startswith(
        "data.documents: needs a text of documents, and data=mixture gives none."
    )
    assert compose(
        ["data=mixture", "data.of={a: pydoc, b: {name: stdlib_code}}", "data.documents=true"]
    )["data"]["documents"]


def test_faults_of_reading_a_part_have_its_path(files):
    (files / "code.txt").write_bytes(b"x" * 100_000 + b"\xff")
    with pytest.raises(ConfigError) as error:
        prepare(composed(files, [*text_words(files), "tokenizer=byte"]))
    assert (
        str(error.value)
        == f"data.of.code.path: must be utf-8 text; got '{files}/code.txt' with byte 0xFF at"
        " position 100,000. Convert the file, for instance with iconv, or leave it out."
        " [data.of.code]"
    )
    (files / "code.txt").write_text("xy")
    with pytest.raises(ConfigError) as error:
        prepare(composed(files, [*text_words(files), "tokenizer=byte"]))
    assert (
        str(error.value)
        == "data.seq_len: one window, seq_len + 1 = 17 tokens, must fit into the training text; got"
        " a text of 1 tokens. Give a longer text. [data.of.code]"
    )


def test_options_in_messages_of_a_part_have_its_path(files):
    (files / "code.tsv").write_text("the same\tand the same\n" * 50)
    words = [*text_words(files, "tsv", "tsv"), "task=seq2seq", "model=encoder_decoder"]
    with pytest.raises(ConfigError) as error:
        prepare(composed(files, [*words, "tokenizer=byte"]))
    assert (
        str(error.value)
        == "data.of.code: the split valid must hold a pair; got none. Give more pairs, or a larger"
        " share of them; equal sources go to the same split. [data.of.code]"
    )


def corpora():
    from xformer_kit.data.corpus import CORPORA

    return CORPORA
