"""Extreme values of the options of decoding: the limit of the mathematics, or one sentence."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generate.conftest import build_small
from xformer_kit import ConfigError
from xformer_kit.generate import beam_search, generate
from xformer_kit.generate.options import Decoding
from xformer_kit.generate.processors import constraints, warpers
from xformer_kit.generate.token_sampler import pick

VOCAB, LENGTH, END = 6, 4, 5
NEVER = -math.inf
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TINY, HUGE = 1e-300, 1e300
small_and_large = st.floats(min_value=TINY, max_value=HUGE)
share = st.sampled_from((TINY, 1e-39, 1e-30, 0.5, 1 - 1e-9, 1.0)) | st.floats(0, 1)
count = st.integers(-1, 4) | st.sampled_from((VOCAB, LENGTH, 10**30))
OPTIONS = {
    "temperature": st.just(0.0) | small_and_large,
    "top_k": count,
    "top_p": share,
    "min_p": share,
    "typical_p": share,
    "repetition_penalty": st.sampled_from((TINY, 1e-3, 1e3, HUGE)) | st.floats(0.5, 2),
    "no_repeat_ngram": count,
    "min_new_tokens": count,
    "max_new_tokens": count,
    "length_penalty": small_and_large,
    "beam": count,
    "num_return": count,
    "penalty_alpha": share,
    "ahead": count,
    "end": st.just(END),
    "seed": st.integers(-(2**70), 2**70),
}
logit = st.sampled_from((0.0, 1.0, -1.0, 30.0, 1e30, -1e30, NEVER)) | st.floats(-5, 5)


@st.composite
def rows(draw):
    """Logits with at least two tokens that are possible; all equal, in some."""
    values = draw(st.lists(logit, min_size=VOCAB, max_size=VOCAB))
    values[:2] = [max(value, -1e30) for value in values[:2]]
    return values if draw(st.booleans()) else [values[0]] * VOCAB


def likeliest(logits):
    return logits == logits.amax(-1, keepdim=True)


def chosen(logits, text, **options):
    """The next token after a text, or None if the options are refused."""
    try:
        decoding = Decoding.of(VOCAB, **options)
    except ConfigError:
        return None
    scores = logits.float()
    for process in constraints(decoding, LENGTH, range(len(text))) + warpers(decoding):
        scores = process(scores, text)
    return pick(scores, decoding.greedy)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(rows(), min_size=2, max_size=2),
    st.lists(st.integers(0, VOCAB - 1), min_size=2 * LENGTH, max_size=2 * LENGTH),
    st.sampled_from(DTYPES),
    st.dictionaries(st.sampled_from(list(OPTIONS)), st.none(), max_size=4),
    st.data(),
)
def test_the_chosen_token_is_possible(values, text, dtype, names, data):
    logits = torch.tensor(values)
    largest = torch.finfo(dtype).max
    logits = logits.clamp(-largest, largest).where(logits > NEVER, NEVER).to(dtype)
    text = torch.tensor(text).view(2, LENGTH)
    options = {name: data.draw(OPTIONS[name], name) for name in names}
    token = chosen(logits, text, **options)
    assert token is None or (logits[range(2), token] > NEVER).all()
    for limit in ({"temperature": TINY}, {"top_p": TINY}, {"top_k": 1, "top_p": 1e-39}):
        assert likeliest(logits)[range(2), chosen(logits, text, **limit)].all()


@pytest.mark.parametrize("temperature", [1e-39, 1e-300, 1e39, 1e300])
def test_the_limits_of_the_temperature(temperature):
    logits = torch.tensor([[1e30, 1e30, 0.0, NEVER], [0.0, 1e-6, 0.0, NEVER]])
    (process,) = warpers(Decoding.of(temperature=temperature))
    expected = (logits > NEVER) if temperature > 1 else likeliest(logits)
    exact = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(process(logits, None).softmax(-1), exact)


@pytest.mark.parametrize("penalty", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_more_beams_than_tokens_find_every_text_once(penalty, early_stopping):
    model, prompt = build_small(vocab=VOCAB), torch.tensor([[1, 2]])

    def log(text):
        return model(torch.tensor([[1, 2, *text]]))[0, -1].log_softmax(-1)

    texts = {(END,): log(())[END]}
    for first, second in product(range(END), range(VOCAB)):
        texts[first, second] = log(())[first] + log((first,))[second]
    exact = {text: (score / len(text) ** penalty).item() for text, score in texts.items()}
    options = {"beam": 50, "num_return": 50, "end": END, "length_penalty": penalty}
    found = beam_search(model, prompt, 2, **options, early_stopping=early_stopping)
    count = int((found.lengths > 0).sum())
    lengths = found.lengths[0, :count].tolist()
    ids = [tuple(found.ids[0, i, 2 : 2 + n].tolist()) for i, n in enumerate(lengths)]
    assert count == len(exact) and {*ids} == {*exact}
    assert found.scores[0, :count].tolist() == pytest.approx([exact[text] for text in ids], 1e-4)
    assert found.scores[0].tolist() == sorted(found.scores[0].tolist(), reverse=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"length_penalty": 1e3, "beam": 2}, "length_penalty: must be at most 5"),
        ({"repetition_penalty": 1e12}, "repetition_penalty: must be at most 1,000"),
        ({"max_new_tokens": 10**12}, "max_new_tokens: must be at most 1,000,000"),
        ({"num_return": 10**12}, "num_return: must be at most 1,000,000"),
        ({"temperature": math.inf}, "temperature: must be a finite number"),
        ({"top_p": 0.0}, "top_p: must be above 0 and at most 1"),
    ],
)
def test_what_has_no_limit_is_refused(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Decoding.of(VOCAB, **options)


def test_a_function_that_allows_only_the_end_too_early_is_refused():
    options = {"end": 1, "min_new_tokens": 2, "allowed": lambda row, ids: [1]}
    with pytest.raises(ConfigError, match="must return at least one id besides end"):
        generate(build_small(), torch.tensor([[2]]), 4, **options)
