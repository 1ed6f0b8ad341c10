"""Laws of the source of an encoder-decoder."""

import torch

from xformer_kit.laws.composition import BATCH, SOURCE, Composition
from xformer_kit.laws.registry import law
from xformer_kit.laws.sequence import SOURCE_ROWS, padded
from xformer_kit.model.tokens import Tokens

PROMPT = 5  # tokens of the first call


@law("source")
def seen(case: Composition) -> None:
    """The source influences the target; without masks every token of the source does."""
    source = case.needed_source()
    model = case.read_only
    model.zero_grad()
    drawn = model.embed if model.source_embed is None else model.source_embed
    case.read(model, case.ids[:1]).square().sum().backward()
    assert drawn.weight.grad is not None
    size = (
        drawn.weight.grad[source[0]].abs().amax(-1)
    )  # rows that the target, of other ids, does not touch
    if size.max() == 0:
        raise case.broken("no token of the source has an influence on the target")
    unmasked = all(look.mask.band == (float("inf"), float("inf")) for look in case.crosses)
    if unmasked and size.min() == 0:
        raise case.broken(
            f"token {int(size.argmin())} of the source has no influence on the target"
        )


@law("source padding", under=("padding",))
@torch.no_grad()
def source_padding(case: Composition) -> None:
    """A padded source equals the unpadded one, with padding on the left or on the right; a source
    that is all padding has no influence.
    """
    source = case.needed_source()
    model, rows = case.read_only, range(BATCH)
    alone = [
        case.predicted(model, case.ids[i : i + 1], Tokens(ids=source[i : i + 1, : SOURCE_ROWS[i]]))
        for i in rows
    ]
    for left, side in ((False, "right"), (True, "left")):
        ids, real = padded(source, left, SOURCE_ROWS)
        logits = case.predicted(model, case.ids, Tokens(ids=ids, real=real))
        for i in rows:
            what = (
                f"a source of {SOURCE_ROWS[i]} tokens, padded on the {side} to {SOURCE}, differs"
                " from the source alone"
            )
            case.same(logits[i], alone[i][0], what)
    nothing = torch.zeros_like(source, dtype=torch.bool)
    logits = case.predicted(model, case.ids, Tokens(ids=source, real=nothing))
    if not logits.isfinite().all():
        raise case.broken("a source that is all padding makes logits that are not finite")
    other = case.predicted(model, case.ids, Tokens(ids=source.flip(-1), real=nothing))
    case.same(other, logits, "what stands on the padding of a source matters")


@law("source once", under=("cache",))
@torch.no_grad()
def once(case: Composition) -> None:
    """With a cache, the first call computes all that the decoder needs of the source; later calls
    do not read it.
    """
    source = Tokens(ids=case.needed_source())
    case.needs_past()
    model = case.read_only
    encoded, _ = model.encode(source)
    whole, past = case.logits(model, case.ids, encoded), case.past(model)
    case.read(model, case.ids[:, :PROMPT], encoded, cache=past)
    gone = encoded._replace(hidden=torch.full_like(encoded.hidden, torch.nan))
    got = case.logits(model, case.ids[:, PROMPT:], gone, cache=past)
    if not got.isfinite().all():
        raise case.broken("a call with a cache reads the source again")
    case.same(got, whole[:, PROMPT:], "a call with a cache differs in what it knows of the source")


@law("source order")
@torch.no_grad()
def order(case: Composition) -> None:
    """Without position, and with full masks, the order of the source has no effect."""
    source = case.needed_source()
    case.needs_no_order(case.stacks[0])
    shuffled = torch.randperm(SOURCE, generator=torch.Generator().manual_seed(4))
    got, expected = (
        case.predicted(case.read_only, case.ids, Tokens(ids=ids))
        for ids in (source[:, shuffled], source)
    )
    case.same(got, expected, "permuting the source matters")
