"""Laws of masks: their declared properties are true, and they combine like sets."""

import torch
from torch import Tensor

from xformer_kit.laws.composition import Composition
from xformer_kit.laws.registry import law
from xformer_kit.mask import MASKS, AllOf, AnyOf, Full, Mask, Not
from xformer_kit.model.tokens import Tokens
from xformer_kit.plan import Node

LENGTH, HEADS = 17, 5


def picture(mask: Mask, queries: slice = slice(None), start: int = 0) -> Tensor:
    """Returns True where a query of a head sees a key, (heads, queries, length). `start`: slot of
    the first token.
    """
    slot = torch.arange(LENGTH)[None] + start
    query, key = (Tokens(slot=one, position=one) for one in (slot[:, queries], slot))
    seen = mask.allows(query.as_query(), key.as_key(), torch.arange(HEADS).view(1, -1, 1, 1))
    return seen.expand(1, HEADS, query.length, LENGTH)[0]


def one_by_one(mask: Mask) -> Tensor:
    """Computes the same for each head, query and key separately, as compiled kernels do."""
    slot = torch.arange(LENGTH)

    def pair(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask.allows(Tokens(slot=query, position=query), Tokens(slot=key, position=key), head)

    each = torch.vmap(
        torch.vmap(torch.vmap(pair, (None, None, 0)), (None, 0, None)), (0, None, None)
    )
    return each(torch.arange(HEADS), slot, slot)


@law("mask")
def mask(case: Composition) -> None:
    """`band`, `sees_future` and `per_head` are true, and the pattern does not depend on the first
    slot unless the mask breaks the law `shift`. A mask is a value, is point-wise, runs under vmap,
    and combines like a set.
    """
    for node in {str(look.options["mask"]): look.options["mask"] for look in case.looks}.values():
        made, again = MASKS.create(node), MASKS.create(node)
        if made != again or hash(made) != hash(again):
            raise case.broken(f"{made} is no value: two of the same options differ")
        seen = picture(made)
        _said(case, node, made, seen)
        if not torch.equal(picture(made, slice(4, 7)), seen[:, 4:7]):
            raise case.broken(
                f"{made} is not point-wise: three queries see something else than among all"
            )
        if not torch.equal(one_by_one(made), seen):
            raise case.broken(
                f"{made} sees something else pair by pair, under vmap, than all at once"
            )
        for same, expected in _algebra(made, seen):
            if not torch.equal(picture(same), expected):
                raise case.broken(f"{same} does not compose as sets do")


def _said(case: Composition, node: Node, made: Mask, seen: Tensor) -> None:
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    if seen.dtype != torch.bool:
        raise case.broken(f"{made} answers with {seen.dtype}, not with true or false")
    if not made.sees_future and (seen & (distance < 0)).any():
        raise case.broken(f"{made} sees the future and says that it does not")
    if not made.per_head and not (seen == seen[:1]).all():
        raise case.broken(f"{made} differs between heads and says that it does not (`per_head`)")
    relative = "shift" not in MASKS.broken_laws(node)
    if relative and any(not torch.equal(picture(made, start=at), seen) for at in (1, 7)):
        raise case.broken(f"{made} counts from the start of a text, and `breaks` has no 'shift'")
    band = made.band()
    if band is not None and not torch.equal(
        seen[0], (distance <= band[0]) & (distance >= -band[1])
    ):
        raise case.broken(f"{made} is not the band {band} that it says it is")


def _algebra(m: Mask, seen: Tensor):
    yield AllOf((m,)), seen
    yield AnyOf((m,)), seen
    yield Not(Not(m)), seen
    yield m & Full(), seen
    yield m | ~Full(), seen
    yield m & ~m, torch.zeros_like(seen)
    yield m | ~m, torch.ones_like(seen)
