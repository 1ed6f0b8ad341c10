"""Arguments without an effect are refused, and a refused call leaves its cache unchanged."""

from contextlib import nullcontext

import pytest
import torch
from torch.testing import assert_close

from xformer_kit import ConfigError
from xformer_kit.generate import score
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import MAX_LEN, VOCAB
from xformer_kit.model.build import build_model
from xformer_kit.tensors.tokens import Tokens

WINDOW = {"name": "sliding_window", "window": 3}
IDS = torch.arange(24).view(2, 12)
GAP = torch.tensor([[True, False, True, True], [True] * 4])  # the cached keys cannot be used
YES = torch.ones(2, 4, dtype=torch.bool)
LAST = {"ids": IDS[:, 4:6]}
FIRST = {"ids": IDS[:, :4]}
TO_CODE = {"source": IDS[:, 6:11]}
GAPS = {**FIRST, "real": GAP}
LONG = {"ids": IDS[:, :1].expand(2, MAX_LEN)}
FUTURE = {"position": torch.full((2, 2), 99)}

# name -> options, fields of the first call, changes of the second one, and how it is refused
CALLS = {
    "rows": ({}, FIRST, {"ids": IDS[:1, 4:6]}, "ids: must have the rows of the cache; got 1 and 2"),
    "room": ({}, FIRST, LONG, f"cache: has room for {MAX_LEN} tokens, of which 4 are taken"),
    "room of a state": ({"attn": "linear"}, FIRST, LONG, "cache: has room for"),
    "room of a window": ({"mask": WINDOW}, FIRST, LONG, "cache: has room for"),
    "vocabulary": ({}, FIRST, {"ids": IDS[:, 4:6] + 99}, "ids: must be ids of the vocabulary"),
    "table": ({"position": "learned"}, FIRST, FUTURE, "position: must be from 0"),
    "table, recomputed": (
        {"position": "learned", "mask": WINDOW},
        GAPS,
        FUTURE,
        "position: must be from 0",
    ),
    "types, recomputed": (
        {"token_types": 2, "mask": WINDOW},
        GAPS,
        {"segment": torch.full((2, 2), 2)},
        "segment: must be from 0 to 1; got 2",
    ),
    "the future": ({"mask": "full"}, FIRST, {}, "cache: a mask sees the future"),
    "a prefix": (
        {"mask": "prefix"},
        {**FIRST, "prefix": YES},
        {"prefix": YES[:, :2]},
        "prefix: must be given in one call",
    ),
    "a law": ({"mask": WINDOW, "placement": "mv_split"}, FIRST, {}, "cache: placement 'mv_split'"),
    "source": (
        {"model": "encoder_decoder"},
        {**TO_CODE, "target": IDS[:, :4]},
        {"target": IDS[:, 4:6], "source": IDS[:, 6:10]},
        "source: must have the cache's source_length; got 4 and 5",
    ),
}


def contents(cache):
    return [(type(one), one.length, [*one.tensors]) for one in cache._caches()]


@pytest.mark.parametrize("name", CALLS)
@torch.no_grad()
def test_a_refused_call_leaves_the_cache_unchanged(name):
    options, first, second, sentence = CALLS[name]
    options = {"model": "decoder", **options}
    model = build_model(tiny_config(**options), VOCAB).double().eval()
    cache = model.cache(2, MAX_LEN, 5 * model.two_stacks)
    model(**first, cache=cache)
    tokens, uncached, before = cache.tokens, cache.uncached, contents(cache)
    kept = [tensor.clone() for *_, tensors in before for tensor in tensors]
    target = {} if "target" in first else LAST
    with pytest.raises((ConfigError, IndexError), match=f"^{sentence}"):
        model(**{**target, **second}, cache=cache)
    assert cache.tokens is tokens and cache.uncached == uncached and not cache.padded_later
    assert [found[:2] for found in contents(cache)] == [found[:2] for found in before]
    found = [tensor for *_, tensors in contents(cache) for tensor in tensors]
    for one, other in zip(found, kept, strict=True):
        assert_close(one, other, rtol=0, atol=0, equal_nan=True)


class Interrupted(Exception):  # noqa: N818  (the name states what happened)
    pass


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask": WINDOW},
        {"attn": "linear"},
        {"attn": "performer"},
        {"attn": "gated_delta", "position": "none"},
        {"attn": {"name": "multi_head", "score": {"name": "selective"}}},
        {"extra": {"token_shift": {}}},
    ],
)
@torch.no_grad()
def test_a_call_that_ends_in_its_last_layer_can_be_repeated(options):
    """Earlier layers have appended to their caches, and a window has begun another buffer."""
    model = build_model(tiny_config(**options), VOCAB).double().eval()
    ids = torch.arange(140).view(2, 70) % VOCAB
    chunks = ids[:, :40], ids[:, 40:67], ids[:, 67:]
    cache, repeated = model.cache(2, 100), model.cache(2, 100)
    last = model.decoder.blocks[-1]

    def interrupt(*_):
        raise Interrupted

    for chunk in chunks:
        expected = model(chunk, cache=cache)
        hook = last.register_forward_hook(interrupt)
        with pytest.raises(Interrupted):
            model(chunk, cache=repeated)
        hook.remove()
        assert_close(model(chunk, cache=repeated), expected, rtol=0, atol=0)


def test_a_refusal_of_a_kernel_leaves_the_cache_unchanged():
    model = build_model(tiny_config(kernel="flex"), VOCAB).eval()
    cache, logits = model.cache(2, 8), []
    for refused in (True, False, True, False):
        context = nullcontext() if refused else torch.no_grad()
        refusal = pytest.raises(ConfigError, match=r"^kernel: 'flex' computes no gradients on a")
        with refusal if refused else nullcontext(), context:
            logits.append(model(IDS[:, cache.length : cache.length + 4], cache=cache))
    with torch.no_grad():
        assert_close(torch.cat(logits, 1), model(IDS[:, :8]))


SOURCE_REAL = {"source_real": YES}
UNUSED = [
    ({"segment": YES.long()}, "segment: is a token type, and the model has no embedding of them."),
    ({"prefix": YES}, "prefix: marks tokens for mask=prefix, and no mask of the model"),
    (
        SOURCE_REAL,
        "source_real: marks the padding of a source that is given as ids, and there is none",
    ),
]


@pytest.mark.parametrize(("fields", "sentence"), UNUSED)
def test_fields_without_an_effect_are_refused(fields, sentence):
    model = build_model(tiny_config(), VOCAB)
    with pytest.raises(ConfigError) as error:
        model(IDS[:, :4], **fields)
    assert str(error.value).startswith(sentence) and "\n" not in str(error.value)


def test_arguments_of_two_stacks_without_an_effect_are_refused():
    model = build_model(tiny_config("encoder_decoder"), VOCAB).eval()
    encoded = model.encode(Tokens(ids=IDS[:, :4]))[0]
    with pytest.raises(ConfigError, match=r"^source_real: .* given as ids, and there is none"):
        model(source=encoded, target=IDS, source_real=YES)
    with pytest.raises(ConfigError, match=r"^source: must have a row for each target; got 2"):
        model(source=encoded, target=IDS.view(3, 8))
    for inputs in ({"source": IDS}, {"ids": IDS[:, :4], "source": IDS, "start": 1}):
        sentence = "start: has no effect" if "start" in inputs else "real: has no effect"
        with pytest.raises(ConfigError, match=f"^{sentence}"):
            model.generate(**{"real": YES} | inputs)


def test_the_padding_of_no_source_is_refused_in_generation_and_scores():
    model = build_model(tiny_config(), VOCAB).eval()
    for call in (model.generate, lambda ids, **fields: score(model, ids, **fields)):
        with pytest.raises(ConfigError, match=r"^source_real: has no effect"):
            call(IDS[:, :4], source_real=YES)


@pytest.mark.parametrize("position", ["learned", "rotary", "alibi", "sinusoidal", "t5"])
@torch.no_grad()
def test_positions_continue_after_given_ones(position):
    model = build_model(tiny_config(position=position), VOCAB).double().eval()
    at = torch.stack([torch.arange(3, 15), torch.arange(1, 13)])
    at[:, 2:] += 2
    whole = model(IDS, position=at)
    cache = model.cache(2, 12)
    parts = [model(IDS[:, :5], position=at[:, :5], cache=cache)]
    parts += [model(IDS[:, i : i + 1], cache=cache) for i in range(5, 8)]
    cache.rewind(2)
    parts[-2:] = [model(IDS[:, 6:], cache=cache)]
    assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-10)
