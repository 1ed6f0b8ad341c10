"""Random blocks."""

from dataclasses import dataclass

import torch

from xformer_kit.mask import MASKS
from xformer_kit.registry import at_least
from xformer_kit.zoo.mask._random import RandomMask, hashed


@MASKS.register("random_blocks", similar=("random", "big_bird", "bigbird"))
@dataclass(frozen=True)
class RandomBlocks(RandomMask):
    """Each block of tokens attends to `count` random blocks among itself and those before it;
    without `causal` these blocks attend to it too (Zaheer et al., 2020, arXiv:2007.14062, section
    2). BigBird itself is any_of [random_blocks, sliding_window, global_tokens], each with
    causal=false.
    """

    variants = [{"alike": False}]

    # Paper: a query draws among all keys.   Here: among those before it, so that the draw does not
    # depend on the length and does not change as a text grows. A block may be drawn twice.

    block: int = 64  # tokens
    count: int = 3  # random blocks per block
    seed: int = 0  # of the draw
    alike: bool = True  # whether all heads see the same blocks

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, block=1, count=1)

    def pattern(self, query, key, head):
        one, other = query.position // self.block, key.position // self.block
        later, earlier = torch.maximum(one, other), torch.minimum(one, other)
        bits = self.hash_of(later, head)
        seen = hashed(bits) % (later + 1) == earlier
        for draw in range(1, self.count):
            seen = seen | (hashed(bits + draw * 0xC2B2AE35) % (later + 1) == earlier)
        return seen
