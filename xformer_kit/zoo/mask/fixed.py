"""A block, and the last tokens of all blocks."""

from dataclasses import dataclass

from xformer_kit.mask import MASKS
from xformer_kit.registry import Fault
from xformer_kit.zoo.mask._factorized import Factorized


@MASKS.register("fixed", also_called=("sparse_fixed",))
@dataclass(frozen=True)
class Fixed(Factorized):
    """A token sees its own block and the last tokens of all blocks (Child et al., 2019,
    arXiv:1904.10509, section 4.3).

    {j: floor(j / stride) = floor(i / stride)} and {j: j mod stride >= stride - summary}.
    """

    breaks = {"shift": "blocks are counted from the start of a text"}

    summary: int = 8  # tokens at the end of a block that later ones see

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        if options.summary > options.stride >= 1:
            yield Fault(
                "summary",
                "must be at most mask.stride",
                got=f"{options.summary} and {options.stride}",
                fix=f"Try {options.stride}.",
            )

    def pattern(self, query, key, head):
        near = query.position // self.stride == key.position // self.stride
        return self.combined(near, key.position % self.stride >= self.stride - self.summary, head)
