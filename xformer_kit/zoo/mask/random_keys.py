"""Keys that are drawn by their distance."""

from dataclasses import dataclass

import torch

from xformer_kit.mask import MASKS
from xformer_kit.registry import Fault, shown
from xformer_kit.zoo.mask._drawn import Drawn, hashed


@MASKS.register("random_keys", also_called=("random_tokens", "random_pattern"))
@dataclass(frozen=True)
class RandomKeys(Drawn):
    """A query sees a key that is d tokens away with the probability p_d that is given, each pair
    drawn by itself and once for all (xformers, Meta, 2021:
    `random_pattern_from_probability_matrix`). Erdős-Rényi graphs, which one p makes, are those from
    which BigBird starts (Zaheer et al., 2020, arXiv:2007.14062, section 2).
    """

    variants = [{"alike": False}]

    # xformers draws so many pairs of a matrix of probabilities.   Here: each pair by a hash of the
    # two places and the seed, so that the draw knows no length, and what is seen does not change as
    # a text grows.

    probabilities: tuple[float, ...] = (
        1.0,
        0.5,
        0.25,
        0.1,
    )  # of distance 0, 1, ...; the last goes on
    seed: int = 0  # of the draw
    alike: bool = True  # whether all heads see the same tokens

    @classmethod
    def check(cls, options, context):
        given = options.probabilities
        if not given or min(given) < 0 or max(given) > 1:
            yield Fault(
                "probabilities",
                "must list at least one number from 0 to 1",
                got=shown(given),
                fix="Try [1.0, 0.5].",
            )
        elif not any(given):
            yield Fault(
                "probabilities",
                "must not all be 0, or no token sees any",
                got=shown(given),
                fix="Try [1.0, 0.5].",
            )

    def pattern(self, query, key, head):
        drawn = hashed(self.drawn(query.position, head) + key.position.long() * 0xC2B2AE35)
        distance = (query.position - key.position).abs()
        seen = drawn < _share(self.probabilities[-1])
        for d, p in enumerate(self.probabilities[:-1]):
            seen = torch.where(distance == d, drawn < _share(p), seen)
        return seen


def _share(probability: float) -> int:
    """How many of the 2^32 hashes are as likely together."""
    return round(probability * 2**32)
