"""Laws of masks: their declared properties are true, and they combine like sets."""

from collections.abc import Iterator

import torch
from torch import Tensor

from xformer_kit.laws.registry import law
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.mask import MASKS, AllOf, AnyOf, Full, Mask, Not
from xformer_kit.plan import Node
from xformer_kit.tensors.tokens import Tokens

LENGTH, HEADS = 17, 5


def visible_keys(mask: Mask, queries: slice = slice(None), start: int = 0) -> Tensor:
    """Returns whether a query of a head sees a key, (heads, queries, length). `start`: slot of the
    first token.
    """
    slot = torch.arange(LENGTH)[None] + start
    query, key = (Tokens(slot=slots, position=slots) for slots in (slot[:, queries], slot))
    visible = mask.allows(query.as_query(), key.as_key(), torch.arange(HEADS).view(1, -1, 1, 1))
    return visible.expand(1, HEADS, query.length, LENGTH)[0]


def visible_keys_one_by_one(mask: Mask) -> Tensor:
    """Returns the same, computed one by one, as in compiled kernels."""
    slot = torch.arange(LENGTH)

    def sees(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return mask.allows(Tokens(slot=query, position=query), Tokens(slot=key, position=key), head)

    every_key = torch.vmap(sees, (None, None, 0))
    every_pair = torch.vmap(every_key, (None, 0, None))
    return torch.vmap(every_pair, (0, None, None))(torch.arange(HEADS), slot, slot)


@law("mask")
def mask(composition: Composition) -> None:
    """`band`, `sees_future` and `per_head` are true, and the pattern does not depend on the first
    slot unless the mask breaks the law `shift`. A mask is a value, is point-wise, runs under vmap,
    and combines like a set.

    Fails: Mine() sees the future although its `sees_future` is false.
    Fix: Declare `band`, `sees_future` and `per_head` as they are, and compute `allows` elementwise
        from its arguments, as a frozen dataclass.
    """
    nodes = [context.options["mask"] for context in composition.attention_contexts]
    for node in {str(node): node for node in nodes}.values():
        mask, again = MASKS.create(node), MASKS.create(node)
        if mask != again or hash(mask) != hash(again):
            raise composition.broken(f"{mask} is no value: two of the same options differ")
        visible = visible_keys(mask)
        _check_properties(composition, node, mask, visible)
        if not torch.equal(visible_keys(mask, slice(4, 7)), visible[:, 4:7]):
            raise composition.broken(
                f"{mask} is not point-wise: three queries see something else than among all"
            )
        if not torch.equal(visible_keys_one_by_one(mask), visible):
            raise composition.broken(
                f"{mask} sees something else pair by pair, under vmap, than all at once"
            )
        for combined, expected in _combinations(mask, visible):
            if not torch.equal(visible_keys(combined), expected):
                raise composition.broken(f"{combined} does not compose as sets do")


def _check_properties(composition: Composition, node: Node, mask: Mask, visible: Tensor) -> None:
    """Raises LawBroken if a declared property of a mask is not true of the keys that it shows."""
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    if visible.dtype != torch.bool:
        raise composition.broken(f"{mask} returns {visible.dtype}, not true or false")
    if not mask.sees_future and (visible & (distance < 0)).any():
        raise composition.broken(f"{mask} sees the future although its `sees_future` is false")
    if not mask.per_head and not (visible == visible[:1]).all():
        raise composition.broken(f"{mask} differs between heads although its `per_head` is false")
    relative = "shift" not in MASKS.broken_laws(node)
    if relative and any(not torch.equal(visible_keys(mask, start=n), visible) for n in (1, 7)):
        raise composition.broken(
            f"{mask} counts from the start of a text, and `breaks` has no 'shift'"
        )
    band = mask.band()
    if band is not None and not torch.equal(
        visible[0], (distance <= band[0]) & (distance >= -band[1])
    ):
        raise composition.broken(f"{mask} is not the band {band} that its `band` returns")


def _combinations(mask: Mask, visible: Tensor) -> Iterator[tuple[Mask, Tensor]]:
    """Yields combinations of a mask, and the keys that each must show."""
    for same in (AllOf((mask,)), AnyOf((mask,)), Not(Not(mask)), mask & Full(), mask | ~Full()):
        yield same, visible
    yield mask & ~mask, torch.zeros_like(visible)
    yield mask | ~mask, torch.ones_like(visible)
