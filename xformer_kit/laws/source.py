"""Laws about a source: what an encoder reads for a decoder. One stack has none."""

import torch
from torch import Tensor

from xformer_kit.laws.book import law
from xformer_kit.laws.case import BATCH, SOURCE, Case, unordered
from xformer_kit.laws.sequence import SOURCE_ROWS, padded
from xformer_kit.model.model import Model
from xformer_kit.model.tokens import Tokens

NONE = "no source"
PROMPT = 5  # tokens of the first call


@law("source")
def seen(case: Case) -> str | None:
    """The target looks at the source: at every token of it where no mask hides any."""
    if case.source is None:
        return NONE
    model = case.read_only
    model.zero_grad()
    drawn = model.embed if model.source_embed is None else model.source_embed
    case.read(model, case.ids[:1]).square().sum().backward()
    assert drawn.weight.grad is not None
    size = (
        drawn.weight.grad[case.source[0]].abs().amax(-1)
    )  # rows that the target, of other ids, does not touch
    if size.max() == 0:
        raise case.broken("no token of the source has an influence on the target")
    unmasked = all(look.mask.band == (float("inf"), float("inf")) for look in case.crosses)
    if unmasked and size.min() == 0:
        raise case.broken(
            f"token {int(size.argmin())} of the source has no influence on the target"
        )
    return None


@law("source padding", under=("padding",))
@torch.no_grad()
def source_padding(case: Case) -> str | None:
    """A source that is padded, on the left or on the right, is the source alone; one that is all
    padding is none.
    """
    if case.source is None:
        return NONE
    model, rows = case.read_only, range(BATCH)
    alone = [
        _reads(case, model, i, Tokens(ids=case.source[i : i + 1, : SOURCE_ROWS[i]])) for i in rows
    ]
    for left in (False, True):
        ids, real = padded(case.source, left, SOURCE_ROWS)
        logits, side = (
            case.predicted(model, case.ids, Tokens(ids=ids, real=real)),
            "left" if left else "right",
        )
        for i in rows:
            what = (
                f"a source of {SOURCE_ROWS[i]} tokens, padded on the {side} to {SOURCE}, differs"
                " from the source alone"
            )
            case.same(logits[i], alone[i], what)
    nothing = torch.zeros_like(case.source, dtype=torch.bool)
    logits = case.predicted(model, case.ids, Tokens(ids=case.source, real=nothing))
    if not logits.isfinite().all():
        raise case.broken("a source that is all padding makes logits that are not finite")
    other = case.predicted(model, case.ids, Tokens(ids=case.source.flip(-1), real=nothing))
    case.same(other, logits, "what stands on the padding of a source matters")
    return None


def _reads(case: Case, model: Model, row: int, source: Tokens) -> Tensor:
    return case.predicted(model, case.ids[row : row + 1], source)[0]


@law("source once", under=("cache",))
@torch.no_grad()
def once(case: Case) -> str | None:
    """With a cache, what a decoder needs of its source is computed in the first call: later ones
    read nothing of it.
    """
    if case.source is None:
        return NONE
    if case.sees_future:
        return "a mask sees the future"
    model = case.read_only
    source, _ = model.encode(Tokens(ids=case.source))
    whole, past = case.logits(model, case.ids, source), case.past(model)
    case.read(model, case.ids[:, :PROMPT], source, cache=past)
    gone = source._replace(hidden=torch.full_like(source.hidden, torch.nan))
    got = case.logits(model, case.ids[:, PROMPT:], gone, cache=past)
    if not got.isfinite().all():
        raise case.broken("a call with a cache reads the source again")
    case.same(got, whole[:, PROMPT:], "a call with a cache differs in what it knows of the source")
    return None


@law("source order")
@torch.no_grad()
def order(case: Case) -> str | None:
    """Without position, and with masks that show all, the order of the source does not matter."""
    if case.source is None:
        return NONE
    if not unordered(case.config, case.stacks[0], (*case.sources, *case.crosses)):
        return "there is an order: a position, or a mask that is not full"
    model, shuffled = (
        case.read_only,
        torch.randperm(SOURCE, generator=torch.Generator().manual_seed(4)),
    )
    got, expected = (
        case.predicted(model, case.ids, Tokens(ids=ids))
        for ids in (case.source[:, shuffled], case.source)
    )
    case.same(got, expected, "permuting the source matters")
    return None
