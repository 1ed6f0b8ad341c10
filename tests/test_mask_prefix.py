"""mask=prefix by eye, in models, and in generation."""

import pytest
import torch
from torch.testing import assert_close

from xformer_kit.laws import LAWS, tiny
from xformer_kit.laws.case import randomise
from xformer_kit.mask import AllOf, AnyOf, Causal, Full, Prefix, SlidingWindow, matrix
from xformer_kit.model import Model
from xformer_kit.tokens import Tokens

VOCAB = 37


def seen(mask, prefix):
    tokens = Tokens(slot=torch.arange(len(prefix))[None], prefix=torch.tensor([prefix], dtype=torch.bool))
    return mask.allows(tokens.as_query(), tokens.as_key(), torch.zeros(1, 1, 1, 1))[0, 0]


def test_by_eye():
    assert seen(Prefix(), [1, 1, 1, 0, 0]).int().tolist() == [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]


def test_without_a_prefix_it_is_causal_and_with_nothing_else_full():
    assert torch.equal(matrix(Prefix(), 6), matrix(Causal(), 6))
    assert torch.equal(seen(Prefix(), [0] * 6), matrix(Causal(), 6))
    assert torch.equal(seen(Prefix(), [1] * 6), matrix(Full(), 6))


def test_a_window_over_the_text_and_a_whole_prefix():
    mask = AllOf((Prefix(), AnyOf((SlidingWindow(window=2), Full() & Prefix()))))
    assert mask.sees_prefix
    assert not mask.sees_future
    assert torch.equal(seen(mask, [1, 1, 1, 0, 0]), seen(Prefix(), [1, 1, 1, 0, 0]))


@pytest.mark.parametrize(
    ("mask", "prefix", "future"),
    [
        (Causal(), False, False),
        (Prefix(), True, False),
        (Prefix() & Causal(), False, False),  # the other hides all that is later
        (Prefix() & Full(), True, False),
        (Prefix() | Causal(), True, False),
        (Prefix() | Full(), True, True),
        (~Prefix(), True, True),
    ],
)
def test_what_it_says_of_itself(mask, prefix, future):
    assert (mask.sees_prefix, mask.sees_future) == (prefix, future)


def model_of(**changes):
    model = Model(tiny(mask="prefix", **changes), VOCAB)
    randomise(model)
    return model.double().eval()


@pytest.mark.parametrize("position", ["rotary", "alibi", "learned"])
@pytest.mark.parametrize("kernel", ["reference", "sdpa"])
@torch.no_grad()
def test_in_a_model_the_prefix_sees_itself_whole_and_never_what_follows(position, kernel):
    model = model_of(position=position, kernel=kernel)
    ids = torch.arange(10)[None]
    prefix = torch.arange(10)[None] < 4
    logits = model(ids, prefix=prefix)
    changed = ids.clone()
    changed[:, 3] = 20
    assert not torch.isclose(model(changed, prefix=prefix)[0, 0], logits[0, 0]).all()
    changed = ids.clone()
    changed[:, 4] = 20
    assert_close(model(changed, prefix=prefix)[:, :4], logits[:, :4])
    assert not torch.isclose(model(changed, prefix=prefix)[0, 5], logits[0, 5]).all()
    causal = Model(tiny(mask="causal", position=position, kernel=kernel), VOCAB).double().eval()
    causal.load_state_dict(model.state_dict())
    assert_close(model(ids), causal(ids))


@pytest.mark.parametrize("position", ["rotary", "alibi", "learned"])
def test_its_laws_of_generation_hold_and_are_about_it(position):
    for law in ("mask", "causality", "cache", "cache with padding", "cache with a prefix", "greedy"):
        assert LAWS[law](tiny(mask="prefix", position=position)) is None
    assert LAWS["cache with a prefix"](tiny(mask="causal")) == "no mask sees a prefix"


@torch.no_grad()
def test_generation_takes_the_prompt_as_the_prefix():
    model = model_of(position="rotary", tie_embeddings=False)
    prompt = torch.arange(36).view(6, 6)
    assert model.prompt(prompt).prefix.all()
    assert Model(tiny(mask="causal"), VOCAB).prompt(prompt).prefix is None
    ids = model.generate(prompt, max_new_tokens=5, temperature=0.0)
    for at in range(6, 11):  # each token anew, from the whole text
        logits = model(ids[:, :at], prefix=torch.arange(at).expand(6, -1) < 6)[:, -1]
        assert torch.equal(logits.argmax(-1), ids[:, at])
    causal = model(ids[:, :-1])[:, 5:].argmax(-1)
    assert not torch.equal(causal, ids[:, 6:])  # the test bites: a causal prompt goes on otherwise
