"""Random keys, with a probability that depends on the distance."""

from dataclasses import dataclass

import torch

from xformer_kit.mask import MASKS
from xformer_kit.registry import Fault, format_value
from xformer_kit.zoo.mask._random import RandomMask, hashed


@MASKS.register("random_keys", also_called=("random_tokens", "random_pattern"))
@dataclass(frozen=True)
class RandomKeys(RandomMask):
    """A query sees a key that is d tokens away with probability p_d, drawn independently for each
    pair of tokens and fixed by the seed (xformers, Meta, 2021:
    `random_pattern_from_probability_matrix`). Erdős-Rényi graphs, which one p makes, are those from
    which BigBird starts (Zaheer et al., 2020, arXiv:2007.14062, section 2).
    """

    variants = [{"alike": False}]

    # xformers draws a fixed number of pairs from a matrix of probabilities.   Here: each pair by a
    # hash of both positions and the seed, so that the draw does not depend on the length and does
    # not change as a text grows.

    # of distance 0, 1, ...; the last is repeated
    probabilities: tuple[float, ...] = (1.0, 0.5, 0.25, 0.1)
    seed: int = 0  # of the draw
    alike: bool = True  # whether all heads see the same tokens

    @classmethod
    def check(cls, options, context):
        values = options.probabilities
        rule = "must not all be 0, or no token sees any"
        if not values or min(values) < 0 or max(values) > 1:
            rule = "must list at least one number from 0 to 1"
        elif any(values):
            return
        yield Fault("probabilities", rule, format_value(values), "Try [1.0, 0.5].")

    def pattern(self, query, key, head):
        bits = hashed(self.hash_of(query.position, head) + key.position.long() * 0xC2B2AE35)
        distance = (query.position - key.position).abs()
        seen = bits < _threshold(self.probabilities[-1])
        for d, p in enumerate(self.probabilities[:-1]):
            seen = torch.where(distance == d, bits < _threshold(p), seen)
        return seen


def _threshold(probability: float) -> int:
    """The number below which a 32-bit hash is with this probability."""
    return round(probability * 2**32)
