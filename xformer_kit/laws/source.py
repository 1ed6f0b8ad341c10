"""Laws of the source of an encoder-decoder."""

import math

import torch

from xformer_kit.laws.registry import law
from xformer_kit.laws.sequence import PLACES, SOURCE_ROWS, padded
from xformer_kit.laws.tiny_composition import BATCH, SOURCE, Composition
from xformer_kit.tensors.tokens import Tokens

PROMPT = 5  # tokens of the first call


@law("source")
def source(composition: Composition) -> None:
    """The source influences the target; without masks every token of the source does.

    Fails: no token of the source has an influence on the target.
    Fix: In cross attention compute keys and values from `source`.
    """
    ids = composition.require_source()
    model = composition.shared_model
    model.zero_grad()
    embedding = model.embed if model.source_embed is None else model.source_embed
    composition.hidden(model, composition.ids[:1]).square().sum().backward()
    assert embedding.weight.grad is not None
    # Rows of the source's tokens, which are no tokens of the target.
    size = embedding.weight.grad[ids[0]].abs().amax(-1)
    if size.max() == 0:
        raise composition.broken("no token of the source has an influence on the target")
    unmasked = all(
        context.mask.band == (math.inf, math.inf)
        for context in composition.attention_contexts
        if context.cross
    )
    if unmasked and size.min() == 0:
        raise composition.broken(
            f"token {int(size.argmin())} of the source has no influence on the target"
        )


@law("source padding", prerequisites=("padding",))
@torch.no_grad()
def source_padding(composition: Composition) -> None:
    """A padded source equals the unpadded one, with padding on the left, on the right or between
    tokens; a source that is all padding has no influence.

    Fails: the ids of a source's padding matter: the gap is 8.80e-02, allowed is 1.00e-09.
    Fix: As for `padding`, with the keys' tokens, `context.key`.
    """
    source = composition.require_source()
    model = composition.shared_model
    unpadded = [
        composition.all_logits(model, ids[None], Tokens(ids=row[None, :length]))[0]
        for ids, row, length in zip(composition.ids, source, SOURCE_ROWS, strict=True)
    ]
    for place in PLACES:
        ids, real = padded(source, place, SOURCE_ROWS)
        logits = composition.all_logits(model, source=Tokens(ids=ids, real=real))
        for i in range(BATCH):
            message = (
                f"a source of {SOURCE_ROWS[i]} tokens, padded to {SOURCE}, {place}, differs from"
                " the source without padding"
            )
            composition.assert_close(logits[i], unpadded[i], message)
    no_real = torch.zeros_like(source, dtype=torch.bool)
    logits, other = (
        composition.all_logits(model, source=Tokens(ids=ids, real=no_real))
        for ids in (source, source.flip(-1))
    )
    if not logits.isfinite().all():
        raise composition.broken("a source that is all padding makes logits that are not finite")
    composition.assert_close(other, logits, "the ids of a source's padding matter")


@law("source once", prerequisites=("cache",))
@torch.no_grad()
def source_once(composition: Composition) -> None:
    """With a cache, the first call computes all that the decoder needs of the source; later calls
    do not read it.

    Fails: a call with a cache reads the source again.
    Fix: Store keys and values of the source in the cache at the first call, and read `cache.kept()`
        later.
    """
    source = Tokens(ids=composition.require_source())
    composition.require_causal()
    model, ids = composition.shared_model, composition.ids
    encoded, _ = model.encode(source)
    expected, cache = composition.logits(model, ids, encoded), composition.empty_cache(model)
    composition.hidden(model, ids[:, :PROMPT], encoded, cache=cache)
    unreadable = encoded._replace(hidden=torch.full_like(encoded.hidden, torch.nan))
    got = composition.logits(model, ids[:, PROMPT:], unreadable, cache=cache)
    if not got.isfinite().all():
        raise composition.broken("a call with a cache reads the source again")
    composition.assert_close(
        got, expected[:, PROMPT:], "a call with a cache uses other values of the source"
    )


@law("source order")
@torch.no_grad()
def source_order(composition: Composition) -> None:
    """Without position, and with full masks, the order of the source has no effect.

    Fails: permuting the source matters: the gap is 4.00e-02, allowed is 1.00e-09.
    Fix: As for `symmetry`, with the tokens of the source.
    """
    source = composition.require_source()
    composition.require_no_order(composition.stacks[0])
    order = torch.randperm(SOURCE, generator=torch.Generator().manual_seed(4))
    got, expected = (
        composition.all_logits(composition.shared_model, source=Tokens(ids=ids))
        for ids in (source[:, order], source)
    )
    composition.assert_close(got, expected, "permuting the source matters")
