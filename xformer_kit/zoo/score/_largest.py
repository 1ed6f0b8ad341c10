"""The largest scores of a row."""

from torch import Tensor


def straight_through(scores: Tensor, soft: Tensor) -> Tensor:
    """1 / m for each of the m largest scores of a row, with the gradient of `soft`."""
    first = largest(scores, 1).to(soft.dtype)
    # The bracket is 0, and has a gradient.
    return first / first.sum(-1, keepdim=True) + (soft - soft.detach())


def largest(scores: Tensor, k: int) -> Tensor:
    """Returns which scores are at least the k-th largest of their row, including all ties."""
    # Not amax where k is 1: in half precision a compiled one has other digits than the scores, and
    # may equal none of them.
    return scores >= scores.topk(min(k, scores.shape[-1]), -1).values[..., -1:]
