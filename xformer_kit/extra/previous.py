"""The tokens before each token of a text: their places and their channels."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from xformer_kit.tensors.tokens import Tokens


class PreviousPlaces(NamedTuple):
    """The places of the n-th real token before each token in its document, for n = 1, 2, ...: each
    field is (n, b, t).
    """

    at: Tensor  # index among all tokens, including cached ones
    exists: Tensor  # False if there is none


def previous_places(key: Tokens, queries: int, count: int) -> PreviousPlaces | None:
    """Returns the places of the `count` tokens before each of the newest `queries`; None if all
    tokens are real and of one document, so that the n-th is n places before.
    """
    if key.real is None and key.document is None:
        return None
    fields = [field for field in (key.real, key.document) if field is not None]
    slots = torch.arange(key.length, device=fields[0].device).expand(max(map(len, fields)), -1)
    real = slots if key.real is None else slots.masked_fill(~key.real, -1)
    last = F.pad(real.cummax(-1).values[:, :-1], (1, 0), value=-1)  # the last real one before each
    places = [last]
    for _ in range(1, count):
        nearer = places[-1]
        places.append(last.gather(1, nearer.clamp_min(0)).masked_fill(nearer < 0, -1))
    found = torch.stack(places)[..., -queries:]
    exists, found = found >= 0, found.clamp_min(0)
    if key.document is not None:
        document = key.document.expand_as(slots)
        found_document = document.expand(count, -1, -1).gather(-1, found)
        exists = exists & (found_document == document[:, -queries:])
    return PreviousPlaces(found, exists)


def previous(x: Tensor, n: int, queries: int, places: PreviousPlaces | None) -> Tensor:
    """Returns the channels of the n-th token before each of the newest `queries` of x (b, t, c); 0
    if there is none.
    """
    if places is None:
        end, start = max(x.shape[1] - n, 0), x.shape[1] - n - queries
        return x[:, start:end] if start >= 0 else F.pad(x[:, :end], (0, 0, queries - end, 0))
    at, exists = (field[n - 1].expand(len(x), -1)[..., None] for field in places)
    return x.gather(1, at.expand(-1, -1, x.shape[-1])) * exists
