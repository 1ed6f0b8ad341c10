"""Laws of generation: with a cache, the results are the same as without."""

from typing import Any

import torch
from torch import Tensor

from xformer_kit.laws.composition import BATCH, LENGTH, Composition, NotApplicable
from xformer_kit.laws.registry import law
from xformer_kit.model.model import Model
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import ConfigError

# Ways to split prompt and continuation.
CHUNKS = (1,) * LENGTH, (5, 1, 3, 4), (LENGTH - 1, 1), (6, 7)
PADS = (0, 2, 4)  # padding on the left of each row's prompt of 5 tokens
NEW = 6  # tokens to generate


def in_chunks(
    case: Composition, model: Model, chunks: tuple[int, ...], real: Tensor | None = None
) -> Tensor:
    """Returns logits (b, t, vocab) of tokens read in chunks; `real`: of the first chunk."""
    past, logits, start = case.past(model), [], 0
    for i, n in enumerate(chunks):
        ids = case.ids[:, start : start + n]
        logits.append(case.logits(model, ids, real=real if i == 0 else None, cache=past))
        start += n
    return torch.cat(logits, 1)


@law("cache")
@torch.no_grad()
def cached(case: Composition) -> None:
    """Cached generation equals uncached, at any split of prompt and continuation, also with padding
    on the left.
    """
    case.needs_past()
    model = case.read_only
    whole = case.logits(model, case.ids)
    for chunks in CHUNKS:
        what = f"with a cache, in chunks of {'+'.join(map(str, chunks))}, logits differ"
        case.same(in_chunks(case, model, chunks), whole, what)


@law("cache with padding", under=("cache", "padding"))
@torch.no_grad()
def cached_and_padded(case: Composition) -> None:
    """Cached generation equals uncached if prompts are padded on the left."""
    case.needs_past()
    model = case.read_only
    real = torch.arange(LENGTH) >= torch.tensor(PADS)[:, None]
    expected = case.logits(model, case.ids, real=real)
    for chunks in ((5, 1, 3, 4), (5,) + (1,) * (LENGTH - 5)):
        got = in_chunks(case, model, chunks, real[:, :5])
        split = "+".join(map(str, chunks))
        what = f"with a cache and padding, in chunks of {split}, logits differ"
        case.same(got[real], expected[real], what)


@law("cache with a prefix", under=("cache",))
@torch.no_grad()
def cached_prefix(case: Composition) -> None:
    """With a prefix mask, cached generation equals uncached, also with padding on the left; later
    tokens never change the prefix.
    """
    if case.sees_future or not any(context.mask.sees_prefix for context in case.own):
        raise NotApplicable("no mask sees a prefix")
    model, ids, prompt = case.read_only, case.ids, 5
    prefix = torch.arange(LENGTH).expand(BATCH, -1) < prompt
    for real in (None, torch.arange(LENGTH) >= torch.tensor(PADS)[:, None]):
        if real is not None and "padding" in case.breaks:
            continue
        expected, past, got = (
            case.logits(model, ids, prefix=prefix, real=real),
            case.past(model),
            [],
        )
        for start, end in ((0, prompt), *((i, i + 1) for i in range(prompt, LENGTH))):
            first = None if real is None else real[:, :end]
            said = Tokens() if start else model.prompt(ids[:, :end], first)
            fields: Any = {"real": said.real, "prefix": said.prefix}
            got.append(case.logits(model, ids[:, start:end], cache=past, **fields))
        counts = torch.ones_like(prefix) if real is None else real
        case.same(
            torch.cat(got, 1)[counts], expected[counts], "with a cache and a prefix, logits differ"
        )
    _in_two_calls(case, model, prefix)
    whole = case.logits(model, ids, prefix=prefix)
    later = torch.cat([ids[:, :prompt], ids[:, prompt:].flip(-1)], 1)
    case.same(
        case.logits(model, later, prefix=prefix)[:, :prompt],
        whole[:, :prompt],
        "what follows changes the prefix",
    )


def _in_two_calls(case: Composition, model: Model, prefix: Tensor) -> None:
    """A prefix that is read in two calls equals the uncached one, or the second call is refused and
    leaves the cache unchanged.
    """
    expected, past, half = case.logits(model, case.ids, prefix=prefix), case.past(model), 2
    got = [case.logits(model, case.ids[:, :half], cache=past, prefix=prefix[:, :half])]
    try:
        got.append(case.logits(model, case.ids[:, half:], cache=past, prefix=prefix[:, half:]))
    except ConfigError:
        if past.length != half:
            raise case.broken("a part of a prefix is refused, and the cache has grown") from None
    else:
        case.same(torch.cat(got, 1), expected, "with a prefix in two calls, logits differ")


@law("select and rewind", under=("cache",))
@torch.no_grad()
def edited(case: Composition) -> None:
    """After `select` and `rewind` the logits equal the uncached ones; `rewind` may raise
    ConfigError.
    """
    case.needs_past()
    model, rows = case.read_only, torch.tensor([2, 0, 0])
    source = None if case.source is None else model.encode(Tokens(ids=case.source))[0]
    whole, past = case.logits(model, case.ids, source), case.past(model)
    case.read(model, case.ids[:, :5], source, cache=past)
    past.select(rows)
    source = source and source.select(rows)
    case.same(
        case.logits(model, case.ids[rows, 5:], source, cache=past),
        whole[rows][:, 5:],
        "after `select`, logits differ",
    )
    try:
        past.rewind(6)
    except ConfigError:
        return
    case.same(
        case.logits(model, case.ids[rows, 7:], source, cache=past),
        whole[rows][:, 7:],
        "after `rewind`, logits differ",
    )


@law("greedy", under=("cache",))
@torch.no_grad()
def greedy(case: Composition) -> None:
    """`generate` with temperature 0 returns the most likely tokens of the uncached model."""
    case.needs_past()
    model = case.read_only
    given = {} if case.source is None else {"source": case.source}
    ids = model.generate(case.ids, max_new_tokens=NEW, temperature=0.0, **given)
    if not torch.equal(ids[:, :LENGTH], case.ids):
        raise case.broken("`generate` changes the prompt")
    prompt = torch.arange(LENGTH + NEW - 1).expand(BATCH, -1) < LENGTH  # the prompt is the prefix
    logits = model(ids[:, :-1], prefix=prompt, **given)[:, -NEW:]
    taken = logits.gather(-1, ids[:, -NEW:, None])[..., 0]
    case.same(taken, logits.amax(-1), "a greedy token is not the likeliest")
