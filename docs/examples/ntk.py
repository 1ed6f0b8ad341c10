"""A scaling of rotations: python train.py components=[docs/examples/ntk.py]
position.scaling=ntk
"""

from dataclasses import dataclass

from xformer_kit.position import SCALINGS, Scaling
from xformer_kit.registry import above


@SCALINGS.register("ntk")
@dataclass(frozen=True)
class NTKAware(Scaling):
    """(theta factor^(r / (r - 2)))^(-2i / r) for r channels: the lowest rate is divided by `factor`
    and the highest unchanged (Peng et al., 2023, arXiv:2309.00071, definition 1).
    """

    factor: float = 4.0  # how many times longer texts may be

    @classmethod
    def check(cls, options, context):
        yield from above(options, factor=0)

    def rates(self, theta, exponent, length, trained_len):
        channels = 2 * exponent.shape[-1]
        return (theta * self.factor ** (channels / max(channels - 2, 1))) ** -exponent
