"""Masks in an ejected file."""

from itertools import accumulate
from typing import Any

from xformer_kit.eject.writer import Writer, refused
from xformer_kit.mask import MASKS
from xformer_kit.mask.algebra import AllOf, AnyOf, Not, PerHead
from xformer_kit.mask.band import Causal, Full, Prefix, SlidingWindow
from xformer_kit.mask.sparse import ChunkedMask, GlobalTokens

SLOTS = ("i", "j")  # of queries and keys: their indices in the row
IN_TEXT = ("query", "key")  # indices that skip padding


def mask_expression(w: Writer, mask: Any, places: tuple[str, str] = SLOTS) -> str:
    """Returns where query i sees key j, as an expression of i and j. places: the names of the
    tokens' positions, which differ from i and j if there is padding.
    """
    if isinstance(mask, Causal):
        return "j <= i"
    if isinstance(mask, Full):
        return "j == j"
    if isinstance(mask, SlidingWindow):
        window = w.value("window", mask.window)
        if mask.causal:
            return f"(j <= i) & (i - j < {window})"
        return f"(i - j > -{window}) & (i - j < {window})"
    if isinstance(mask, (AllOf, AnyOf)):
        sign = " & " if isinstance(mask, AllOf) else " | "
        return sign.join(f"({mask_expression(w, one, places)})" for one in mask.of)
    if isinstance(mask, Not):
        return f"~({mask_expression(w, mask.of, places)})"
    if isinstance(mask, PerHead):
        return _per_head(w, mask, places)
    if isinstance(mask, ChunkedMask):
        same = f"{_chunk(w, mask, places[0])} == {_chunk(w, mask, places[1])}"
        return f"({same}) & (j <= i)" if mask.causal else same
    if isinstance(mask, GlobalTokens):
        first = " | ".join(f"({place} < {mask.count})" for place in places)
        return f"({first}) & (j <= i)" if mask.causal else first
    if isinstance(mask, Prefix):
        return "(j <= i) | prefix[:, None, None]"
    raise refused("mask", MASKS.name_of(type(mask)) or type(mask).__name__)


def _chunk(w: Writer, mask: ChunkedMask, place: str) -> str:
    """The expression of the number of a token's chunk."""
    if isinstance(mask.chunk, int):
        return f"{place} // {mask.chunk}"
    *first, last = mask.chunk
    if not first:
        return f"{place} // {last}"
    return f"{w.part('chunk', 'chunk')}({place}, {tuple(accumulate(first))}, {last})"


def _per_head(w: Writer, mask: PerHead, places: tuple[str, str]) -> str:
    """The expression of a mask for each group of heads: the last one whose heads these are."""
    seen = mask_expression(w, mask.of[0], places)
    for n, one in enumerate(mask.of[1:], 1):
        if mask.groups is None:
            heads = f"head % {len(mask.of)} == {n}"
        else:
            heads = f"head >= {sum(mask.groups[:n])}"
        seen = f"torch.where({heads}, {mask_expression(w, one, places)}, {seen})"
    return seen


def fills_rows(mask: Any) -> bool:
    """Whether every query sees at least one key, as far as is known."""
    return isinstance(mask, GlobalTokens) or _sees_itself(mask)


def _sees_itself(mask: Any) -> bool:
    """Whether every token sees itself, as far as is known."""
    if isinstance(mask, (AllOf, PerHead)):
        return all(map(_sees_itself, mask.of))
    if isinstance(mask, AnyOf):
        return any(map(_sees_itself, mask.of))
    return not isinstance(mask, (Not, GlobalTokens))
