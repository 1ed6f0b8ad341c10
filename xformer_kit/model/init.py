"""Initialisations: the distribution that each matrix of a model is drawn from at the start."""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.registry import Fault, Registry, above


class Matrix(NamedTuple):
    """What an initialisation may know of a matrix (..., out, in)."""

    name: str
    shape: tuple[int, ...]
    looked_up: bool  # whether its rows are looked up: embeddings, learned positions
    # matrices that write to the residual stream of its stack, itself included; 0 where it does not
    writes: int
    gain: float = 1.0  # factor of its standard deviation, set by the placement around it
    # whether its network has a gate beside it, and what it gives is multiplied by that
    gated: bool = False

    @property
    def layer(self) -> int | None:
        """Index of its block in the stack, from 0; None outside of blocks."""
        _, block, *_ = self.name.split(".")
        return int(block) if block.isdigit() else None


class Init:
    """Base of all initialisations: every matrix is drawn from N(0, std(matrix)^2).

    Matrices that write to the residual stream are divided by sqrt(their number in the stack) where
    `depth_scaled`, so that the stream's variance does not grow with depth (Radford et al., 2019,
    section 2.3).

    cut: how many deviations from 0 nothing is drawn, None where there is no end: what lies beyond
    is drawn again, so that the deviation of what is left is smaller, with 2 by 12 %. Rows that have
    a spread of their own, `embedding`, are not cut.
    """

    cut: float | None = None

    def __init__(self, depth_scaled: bool, embedding: float | None = None):
        self.depth_scaled = depth_scaled
        self.embedding = embedding

    @classmethod
    def check(cls, options, context):
        yield from above(options, std=0, embedding=0, output=0)
        yield from above(options, "null cuts nothing.", cut=0)

    def spread(self, out: int, into: int) -> float:
        """The standard deviation of a matrix with `into` inputs and `out` outputs."""
        raise NotImplementedError

    def std(self, matrix: Matrix) -> float:
        if matrix.looked_up and self.embedding is not None:
            return self.embedding
        std = self.spread(*matrix.shape[-2:]) * matrix.gain
        return std / math.sqrt(matrix.writes) if matrix.writes and self.depth_scaled else std

    def draw(self, matrix: Matrix, source: torch.Generator) -> Tensor:
        """The matrix at its start, in fp32."""
        std, drawn = self.std(matrix), torch.empty(matrix.shape)
        if self.cut is None or std == 0 or (matrix.looked_up and self.embedding is not None):
            return drawn.normal_(0, std, generator=source)
        return nn.init.trunc_normal_(
            drawn, 0, std, -self.cut * std, self.cut * std, generator=source
        )


# dim: channels of the residual stream; stacks: stack -> layers.
INITS = Registry("init", given=("dim", "stacks"), base=Init)


@INITS.register("gpt2", also_called=("normal", "gpt", "trunc_normal"))
class GPT2(Init):
    """N(0, std^2) for every matrix, whatever its shape (Radford et al., 2019, and the released
    GPT-2).

    With `cut` 2 and without depth_scaled it is BERT's (Devlin et al., 2019, the released code), as
    in timm's vision transformers. With `zero_output` a model starts as the identity, and layer
    after layer comes to life (ReZero's idea: Bachlechner et al., 2020, arXiv:2003.04887; as in
    Fixup: Zhang et al., 2019, arXiv:1901.09321, section 3).
    """

    def __init__(
        self,
        *,
        std: float = 0.02,  # standard deviation
        depth_scaled: bool = True,  # whether residual writes are divided by sqrt(their number)
        zero_output: bool = False,  # whether residual writes start at 0
        cut: (
            float | None
        ) = None,  # standard deviations beyond which nothing is drawn; null is no end
    ):
        super().__init__(depth_scaled)
        self.same = std
        self.zero_output = zero_output
        self.cut = cut

    def spread(self, out, into):
        return self.same

    def std(self, matrix):
        return 0.0 if self.zero_output and matrix.writes else super().std(matrix)


@INITS.register("llama", also_called=("llama_depth", "olmo", "torchtitan"))
class Llama(Init):
    """N(0, std^2), divided by sqrt(2 layers) for outputs of sublayers and for the matrix of a glu
    that its gate multiplies; N(0, 1 / dim) for a head of its own, N(0, 1) for embeddings (OLMo-core
    2.5, Ai2, 2026, and torchtitan, Meta, 2024).

    depth: `stack` has the number of its layers, `layer` the number of each layer, 1, 2, ...
    (`llama_depth`). All but embeddings are drawn again beyond 3 standard deviations. With tied
    embeddings the head is N(0, 1) too, and logits are large.
    """

    # OLMo-core divides all matrices of experts and routers.   Here: of experts as of a network for
    # all tokens.

    cut = 3.0

    def __init__(
        self,
        dim: int,
        stacks: Mapping[str, int],
        *,
        std: float = 0.02,  # standard deviation
        embedding: float = 1.0,  # standard deviation of embeddings and learned positions
        depth: Literal[
            "stack", "layer"
        ] = "stack",  # the layers by which is divided: all of a stack, or those up to this one
    ):
        super().__init__(False, embedding)
        self.same = std
        self.dim = dim
        self.stacks = stacks
        self.by_layer = depth == "layer"

    def spread(self, out, into):
        return self.same

    def std(self, matrix):
        if matrix.name == "head.weight":
            return self.dim**-0.5
        if matrix.looked_up or not (matrix.writes or matrix.gated):
            return super().std(matrix)
        layers = (
            matrix.layer + 1
            if self.by_layer and matrix.layer is not None
            else self.stacks[matrix.name.split(".")[0]]
        )
        return super().std(matrix) / math.sqrt(2 * layers)


class ByShape(Init):
    """Those whose spread follows from a matrix's inputs and outputs. A row that is looked up has
    neither: it is drawn from N(0, embedding^2).
    """

    def __init__(
        self,
        *,
        embedding: float = 0.02,  # standard deviation of embeddings and learned positions
        depth_scaled: bool = True,  # whether residual writes are divided by sqrt(their number)
    ):
        super().__init__(depth_scaled, embedding)


@INITS.register("lecun", also_called=("fan_in", "lecun_normal"))
class LeCun(ByShape):
    """N(0, 1 / inputs): a product keeps the variance of its input (LeCun et al., 1998, "Efficient
    BackProp", section 4.6). At widths of a few hundred channels it starts several times larger than
    0.02.
    """

    def spread(self, out, into):
        return into**-0.5


@INITS.register("xavier", also_called=("glorot", "xavier_normal"))
class Xavier(ByShape):
    """N(0, 2 / (inputs + outputs)): forward and backward keep their variance on average (Glorot and
    Bengio, 2010, eq. 16).
    """

    def __init__(
        self,
        *,
        embedding: float = 0.02,  # standard deviation of embeddings and learned positions
        depth_scaled: bool = False,  # whether residual writes are divided by sqrt(their number)
    ):
        super().__init__(embedding=embedding, depth_scaled=depth_scaled)

    def spread(self, out, into):
        return math.sqrt(2 / (into + out))


@INITS.register("kaiming", also_called=("he", "kaiming_normal"))
class Kaiming(ByShape):
    """N(0, 2 / inputs): keeps the variance behind a ReLU (He et al., 2015, arXiv:1502.01852, eq.
    10).
    """

    def spread(self, out, into):
        return math.sqrt(2 / into)


@INITS.register("small", also_called=("small_init", "smallinit"))
class Small(ByShape):
    """N(0, 2 / (5 dim)) for every matrix, dim that of the model: what Xavier gives a feed-forward
    network of 4 dim channels (SmallInit: Nguyen and Salazar, 2019, arXiv:1910.05895, section 2.2).

    With `output` g, outputs of sublayers have the standard deviation g / (layers sqrt(dim)): 2 in
    GPT-NeoX (Black et al., 2022, arXiv:2204.06745, section 3.4), 1 in litgpt's code for it, which
    has `embedding` null.
    """

    def __init__(
        self,
        dim: int,
        stacks: Mapping[str, int],
        *,
        embedding: (
            float | None
        ) = 0.02,  # standard deviation of embeddings; null is that of matrices
        depth_scaled: bool = False,  # whether residual writes are divided by sqrt(their number)
        output: (
            float | None
        ) = None,  # of residual writes output / (layers sqrt(dim)); null is as others
    ):
        super().__init__(depth_scaled=depth_scaled)
        self.embedding = embedding
        self.same = math.sqrt(2 / (5 * dim))
        self.stacks = stacks
        self.output = output
        self.each = dim**-0.5

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        if options.output is not None and options.depth_scaled:
            yield Fault(
                "depth_scaled",
                "has no say beside init.output, which divides by the number of layers",
                fix="Leave it false.",
            )

    def spread(self, out, into):
        return self.same

    def std(self, matrix):
        if self.output is None or not matrix.writes:
            return super().std(matrix)
        return self.output * self.each / self.stacks[matrix.name.split(".")[0]] * matrix.gain


@INITS.register("depth_scaled", also_called=("ds_init", "ds"))
class DepthScaled(Xavier):
    """Xavier, divided by sqrt(l) in layer l of a stack, from 1 on (DS-Init: Zhang et al., 2019,
    arXiv:1908.11365, section 4; they draw from a uniform distribution of that variance, times
    alpha^2).
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,  # factor of the standard deviation in layers
        embedding: float = 0.02,  # standard deviation of embeddings and learned positions
    ):
        super().__init__(embedding=embedding, depth_scaled=False)
        self.alpha = alpha

    @classmethod
    def check(cls, options, context):
        yield from above(options, alpha=0, embedding=0)

    def std(self, matrix):
        if matrix.layer is None:
            return super().std(matrix)
        return super().std(matrix) * self.alpha / math.sqrt(matrix.layer + 1)
