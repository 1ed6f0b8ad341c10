"""Corrupted texts: by eye, in their rates, and restored."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objective_models import WORDS, Tokenizer, alike, generator, ids, made
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.data.batch import collate
from xformer_kit.objective import OBJECTIVES
from xformer_kit.objective.denoising import replace_spans, spans
from xformer_kit.registry import ConfigError, Context

KINDS = ("denoising", "text_infilling", "mixture_of_denoisers")
TEXT = np.arange(WORDS)


def objective(name, **options):
    made_of = OBJECTIVES.create({"name": name, **options})
    made_of.tokenizer = Tokenizer(made_of.specials)
    return made_of


def repaired(source, target, sentinels):
    """The text: each sentinel of the source replaced by what the target says of it."""
    said: dict[int, list[int]] = {}
    for token in target.tolist():
        if token in sentinels:
            said[last := token] = []
        else:
            said[last].append(token)
    out = [
        t for token in source.tolist() for t in (said.pop(token) if token in sentinels else [token])
    ]
    assert not said
    return out


def test_the_paper_s_figure_by_eye():
    text = ids(
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
    )  # Thank you (for inviting) me to your party (last) week
    source, target = replace_spans(text, [(2, 4), (8, 9)], [100, 101, 102])
    assert source.tolist() == [0, 1, 100, 4, 5, 6, 7, 101, 9, 10]
    assert target.tolist() == [100, 2, 3, 101, 8]


@settings(max_examples=200, deadline=None)
@given(
    n=st.integers(1, 90),
    rate=st.floats(0.01, 0.99),
    mean=st.floats(1, 70),
    most=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_spans_of_any_text_are_apart_and_as_many_as_asked_for(n, rate, mean, most, seed):
    found = spans(n, rate, mean, most, generator(seed))
    noise = min(max(round(n * rate), 1), max(n - 1, 1))
    assert sum(end - start for start, end in found) == noise
    assert 1 <= len(found) <= most
    assert all(start < end for start, end in found)
    assert all(one[1] < other[0] for one, other in pairwise(found))
    assert found[-1][1] == n
    assert n == 1 or found[0][0] > 0


def test_lengths_of_spans_are_any_composition_with_the_same_probability():
    # 5 tokens in 2 spans: 1+4, 2+3, 3+2, 4+1; 5 kept tokens in front of them alike.
    counts = np.zeros((4, 4))
    for seed in range(4000):
        (first, end), _ = spans(10, 0.5, 2.5, 100, generator(seed))
        counts[first - 1, end - first - 1] += 1
    assert alike(counts.ravel()) > 1e-3


@pytest.mark.parametrize("n", [1, 2, 7, 64, 513])
@pytest.mark.parametrize("name", ["denoising", "mixture_of_denoisers"])
def test_sentinels_and_target_restore_the_text(name, n):
    made_of = objective(name)
    sentinels = {
        made_of.tokenizer.special(s) for s in made_of.specials if s.startswith("<extra_id_")
    }
    text = np.random.default_rng(0).integers(WORDS, size=n)
    for seed in range(30):
        source, target = made_of.corrupt(text, generator(seed))
        modes = [
            made_of.tokenizer.special(mode)
            for mode in ("[R]", "[S]", "[X]")
            if mode in made_of.specials
        ]
        if modes:
            assert source[0] in modes
            source = source[1:]
        assert repaired(source, target, sentinels) == text.tolist()


def test_t5_hides_its_rate_in_spans_of_its_mean():
    made_of = objective("denoising")
    source, target = made_of.corrupt(np.zeros(512, dtype=np.int64), generator())
    sentinels = int((source >= WORDS).sum())
    assert sentinels == round(round(512 * 0.15) / 3) == 26
    assert len(target) - sentinels == round(512 * 0.15) == 77
    few = objective("denoising", sentinels=5).corrupt(np.zeros(512, dtype=np.int64), generator())
    assert ((few[0] >= WORDS).sum(), len(few[1])) == (5, 77 + 5)


def test_the_mixture_draws_the_paper_s_denoisers_alike():
    made_of, counts = objective("mixture_of_denoisers"), dict.fromkeys(("[R]", "[S]", "[X]"), 0)
    names = {made_of.tokenizer.special(mode): mode for mode in counts}
    hidden = []
    for seed in range(2100):
        source, target = made_of.corrupt(np.zeros(256, dtype=np.int64), generator(seed))
        counts[names[source[0]]] += 1
        hidden.append((names[source[0]], int((target == 0).sum()), int((target >= WORDS).sum())))
    assert alike(list(counts.values()), [600, 300, 1200]) > 1e-3
    assert set(hidden) == {
        ("[R]", 38, 13),
        ("[R]", 38, 5),
        ("[S]", 64, 1),
        ("[X]", 128, 43),
        ("[X]", 128, 16),
        ("[X]", 38, 1),
        ("[X]", 128, 2),
    }
    only = objective("mixture_of_denoisers", regular=0, extreme=0)
    source, target = only.corrupt(TEXT, generator())
    first = only.tokenizer.special("<extra_id_0>")
    assert source.tolist() == [only.tokenizer.special("[S]"), *range(15), first]
    assert target.tolist() == [first, *range(15, 20)]


def test_infilling_keeps_the_order_and_hides_exactly_its_rate():
    made_of = objective("text_infilling")
    mask = made_of.tokenizer.special("<mask>")
    for seed in range(200):
        source, target = made_of.corrupt(TEXT, generator(seed))
        assert target.tolist() == TEXT.tolist()
        kept = source[source != mask]
        assert len(kept) == 20 - 6
        assert (np.diff(kept) > 0).all()
        assert len(source) <= 20


def test_lengths_of_infilled_spans_are_poisson():
    lengths = np.concatenate(
        [objective("text_infilling")._lengths(20_000, generator(s))[:-1] for s in range(5)]
    )
    seen = np.bincount(np.minimum(lengths, 9), minlength=10)
    share = [math.exp(-3) * 3**k / math.factorial(k) for k in range(9)]
    share.append(1 - sum(share))
    assert alike(seen, len(lengths) * np.array(share)) > 1e-3


def test_sentences_are_permuted_whole():
    made_of = objective("text_infilling", permute_sentences=True)
    made_of.tokenizer.pieces = lambda: [b". " if i % 5 == 4 else b"word" for i in range(WORDS)]
    orders = set()
    for seed in range(200):
        blocks = made_of._permuted(TEXT, generator(seed)).reshape(4, 5)
        assert sorted(blocks.tolist()) == TEXT.reshape(4, 5).tolist()
        orders.add(tuple(blocks[:, 0] // 5))
    assert len(orders) == 24
    _, target = made_of.corrupt(TEXT, generator())
    assert target.tolist() == TEXT.tolist()


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n", [3, 4, 9, 40, 200])
def test_the_model_reads_at_most_seq_len_tokens_of_each_side(name, n):
    made_of = objective(name)
    for seed in range(50):
        example = made_of.example({"tokens": np.zeros(n + 1, dtype=np.int64)}, generator(seed))
        assert len(example["source"]) <= n
        assert len(example["target"]) <= n + 1  # all but the last are read
        assert example["source"][-1] == example["target"][-1] == made_of.tokenizer.special("</s>")
        assert example["target"][0] == made_of.tokenizer.special("<s>")


@pytest.mark.parametrize("name", KINDS)
def test_an_example_is_a_function_of_its_draw_and_padding_is_no_text(name):
    made_of = objective(name)
    window = {"tokens": np.arange(90) % WORDS}
    one, same, other = (made_of.example(window, generator(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(one[key], same[key]) for key in ("source", "target"))
    assert not all(np.array_equal(one[key], other[key]) for key in ("source", "target"))
    padded = {
        "tokens": ids(7, 8, 9, 0, 0),
        "tokens.real": np.array([True, True, True, False, False]),
    }
    example = made_of.example(padded, generator())
    text = {t for key in ("source", "target") for t in example[key].tolist() if t < WORDS}
    assert text <= {7, 8, 9}


def test_a_window_without_room_is_answered_in_a_sentence():
    with pytest.raises(
        ConfigError, match=r"^data\.seq_len: must be at least 2 tokens, 1 of them special; got 1\.$"
    ):
        objective("denoising").example({"tokens": ids(1, 2)}, generator())


@pytest.mark.parametrize("name", KINDS)
def test_the_loss_of_a_batch_is_that_of_its_rows(name):
    made_of, model = made(name, "encoder_decoder", label_smoothing=0.1, z_loss=0.01)
    model.train()
    rng = np.random.default_rng(0)
    examples = [
        made_of.example({"tokens": rng.integers(WORDS, size=n)}, generator(n)) for n in (13, 8, 5)
    ]
    whole, parts = (
        made_of.loss(model, collate(examples)),
        [made_of.loss(model, collate([e])) for e in examples],
    )
    assert_close(sum(part[0] for part in parts), whole[0])
    assert sum(part[1] for part in parts) == whole[1] == sum(len(e["target"]) - 1 for e in examples)


@torch.no_grad()
def test_the_loss_is_the_surprise_of_the_target():
    made_of, model = made("denoising", "encoder_decoder")
    example = made_of.example({"tokens": TEXT[:14]}, generator())
    source, target = (torch.tensor(example[key])[None] for key in ("source", "target"))
    logits = model(source=source, target=target[:, :-1]).log_softmax(-1)
    expected = -logits.gather(-1, target[:, 1:, None]).sum()
    assert_close(made_of.loss(model, collate([example]))[0], expected)


def test_ranges_are_answered_in_a_sentence():
    def faults(name, **options):
        return messages(OBJECTIVES.faults({"name": name, **options}, "task", Context()))

    assert faults("denoising", rate=1.0) == [
        "task.rate: must be above 0 and below 1; got 1.0. Try 0.15."
    ]
    assert faults("denoising", sentinels=0) == ["task.sentinels: must be at least 1; got 0."]
    assert faults("text_infilling", span=0.5) == ["task.span: must be at least 1 token; got 0.5."]
    assert faults("mixture_of_denoisers", extreme=-1.0) == [
        "task.extreme: must be at least 0; got -1.0."
    ]
    assert faults("mixture_of_denoisers", regular=0, sequential=0, extreme=0) == [
        "task.regular: some denoiser must have a weight; got 0 for all. Try 2, sequential=1 and"
        " extreme=4."
    ]
