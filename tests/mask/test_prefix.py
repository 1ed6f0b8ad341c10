"""mask=prefix: worked out, in models, and in generation."""

import pytest
import torch
from torch.testing import assert_close

from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.laws.tiny_composition import randomise
from xformer_kit.mask import AllOf, AnyOf, Causal, Full, Prefix, SlidingWindow, matrix
from xformer_kit.model.build import build_model
from xformer_kit.registry import ConfigError
from xformer_kit.tensors.tokens import Tokens

VOCAB = 37


def seen(mask, prefix):
    tokens = Tokens(
        slot=torch.arange(len(prefix))[None], prefix=torch.tensor([prefix], dtype=torch.bool)
    )
    return mask.allows(tokens.as_query(), tokens.as_key(), torch.zeros(1, 1, 1, 1))[0, 0]


def test_worked_out():
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
        (Full() & Full(), False, True),
        (Prefix() | Causal(), True, False),
        (Prefix() | Full(), True, True),
        (~Prefix(), True, True),
    ],
)
def test_traits(mask, prefix, future):
    assert (mask.sees_prefix, mask.sees_future) == (prefix, future)


def model_of(**changes):
    model = build_model(tiny_config(mask="prefix", **changes), VOCAB)
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
    causal = (
        build_model(tiny_config(mask="causal", position=position, kernel=kernel), VOCAB)
        .double()
        .eval()
    )
    causal.load_state_dict(model.state_dict())
    assert_close(model(ids), causal(ids))


@pytest.mark.parametrize("position", ["rotary", "alibi", "learned"])
def test_its_laws_of_generation_hold_and_are_about_it(position):
    for law in (
        "mask",
        "causality",
        "cache",
        "cache with padding",
        "cache with a prefix",
        "greedy",
    ):
        assert LAWS[law](tiny_config(mask="prefix", position=position)) is None
    assert LAWS["cache with a prefix"](tiny_config(mask="causal")) == "no mask sees a prefix"


@torch.no_grad()
def test_generation_takes_the_prompt_as_the_prefix():
    model = model_of(position="rotary", tie_embeddings=False)
    prompt = torch.arange(36).view(6, 6)
    assert model.prompt(prompt).prefix.all()
    assert build_model(tiny_config(mask="causal"), VOCAB).prompt(prompt).prefix is None
    ids = model.generate(prompt, max_new_tokens=5, temperature=0.0)
    for at in range(6, 11):  # each token again, from the whole text
        logits = model(ids[:, :at], prefix=torch.arange(at).expand(6, -1) < 6)[:, -1]
        assert torch.equal(logits.argmax(-1), ids[:, at])
    causal = model(ids[:, :-1])[:, 5:].argmax(-1)
    assert not torch.equal(causal, ids[:, 6:])  # a causal prompt continues differently


SEVERAL = (
    "prefix: must be given in one call: the 3 tokens in the cache would have attended to the 4"
    " new ones. Give the whole prefix in the first call, and later tokens"
    " with prefix False."
)


def in_calls(model, ids, *chunks, **fields):
    """Logits of chunks that are read one after another with a cache."""
    past, logits, start = model.cache(len(ids), ids.shape[1]), [], 0
    for n in chunks:
        component = {name: field[:, start : start + n] for name, field in fields.items()}
        logits.append(model(ids[:, start : start + n], cache=past, **component))
        start += n
    return torch.cat(logits, 1)


@torch.no_grad()
def test_a_prefix_in_several_calls_is_refused_for_the_first_cannot_see_the_rest():
    model, ids = model_of(position="rotary"), torch.arange(10)[None]
    prefix = torch.arange(10)[None] < 5
    past = model.cache(1, 10)
    model(ids[:, :3], cache=past, prefix=prefix[:, :3])
    with pytest.raises(ConfigError) as error:
        model(ids[:, 3:7], cache=past, prefix=prefix[:, 3:7])
    assert str(error.value) == SEVERAL
    assert past.length == 3
    with pytest.raises(ConfigError, match=r"^prefix: "):  # nor may a prefix follow a text
        in_calls(model, ids, 3, 7, prefix=torch.arange(10)[None] >= 3)


@torch.no_grad()
def test_chunks_whose_past_sees_nothing_of_them_equal_the_whole():
    model, ids = model_of(position="rotary"), torch.arange(20).view(2, 10)
    for chunks in ((5, 5), (5, 1, 4), (7, 3)):  # the whole prefix comes in the first
        prefix = torch.arange(10).expand(2, -1) < torch.tensor([[5], [3]])
        assert_close(in_calls(model, ids, *chunks, prefix=prefix), model(ids, prefix=prefix))
    assert_close(in_calls(model, ids, 3, 3, 4), model(ids))  # no prefix at all
    document = (
        torch.arange(10).expand(2, -1) // 5
    )  # the second text of a row has a prefix of its own
    prefix = torch.arange(10).expand(2, -1) % 5 < 3
    whole = model(ids, prefix=prefix, document=document)
    assert_close(in_calls(model, ids, 5, 5, prefix=prefix, document=document), whole)
    real = torch.arange(10).expand(2, -1) >= 3  # the first call holds nothing but padding
    prefix = torch.arange(10).expand(2, -1) < 6
    whole = model(ids, prefix=prefix, real=real)
    assert_close(in_calls(model, ids, 3, 3, 4, prefix=prefix, real=real)[:, 3:], whole[:, 3:])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"mask": "full"},
            "cache: a mask sees the future: the 6 tokens in the cache would have attended to"
            " the 4 new ones. Give all tokens in one call, or build the model with mask=causal.",
        ),
        (
            {"placement": "mv_split"},
            "cache: placement 'mv_split' breaks the law of cache (a new token changes the mean of"
            " all tokens before it). Give all tokens in one call, or choose another component.",
        ),
    ],
    ids=str,
)
@torch.no_grad()
def test_a_second_call_is_refused_if_new_tokens_change_those_in_the_cache(changes, sentence):
    model, ids = build_model(tiny_config(**changes), VOCAB).double().eval(), torch.arange(10)[None]
    assert_close(in_calls(model, ids, 10), model(ids))
    with pytest.raises(ConfigError) as error:
        in_calls(model, ids, 6, 4)
    assert str(error.value) == sentence
