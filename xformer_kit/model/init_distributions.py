"""Initialisations: the distributions from which the initial matrices of a model are drawn."""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from xformer_kit.registry import Fault, Registry, above
from xformer_kit.tensors import ParameterInfo


class Matrix(NamedTuple):
    """The properties of a matrix (..., out, in) that an initialisation may use."""

    name: str  # of the parameter in the model
    shape: tuple[int, ...]  # (..., out, in)
    info: ParameterInfo  # role, axes, ...
    # number of matrices that write to the residual stream of its stack; 0 if it is none of them
    writes: int = 0
    gain: float = 1.0  # factor of its standard deviation, set by the placement around it
    stack: str = ""  # name of its stack; empty outside of stacks
    layer: int | None = None  # index of its block in the stack, from 0; None outside of blocks
    # shape at the base width of muP, from which the standard deviation follows; None: `shape`
    at_base: tuple[int, ...] | None = None

    @property
    def looked_up(self) -> bool:
        """Whether its rows are looked up: embeddings, learned positions."""
        return self.info.role == "embedding"


class Init:
    """Base of all initialisations: every matrix is drawn from N(0, std(matrix)^2).

    depth_scaled: whether matrices that write to the residual stream are divided by sqrt(their
    number in the stack), so that its variance does not grow with depth (Radford et al., 2019,
    section 2.3).
    embedding: standard deviation of matrices whose rows are looked up; None: as of others.
    constant_std: standard deviation of other matrices, if it does not depend on their shape.
    cut: numbers beyond this many standard deviations are drawn again, which makes the standard
    deviation smaller, with 2 by 12 %; None: no limit. It does not apply to `embedding`.
    """

    cut: float | None = None

    def __init__(
        self, depth_scaled: bool, embedding: float | None = None, constant_std: float = 0.0
    ):
        self.depth_scaled = depth_scaled
        self.embedding = embedding
        self.constant_std = constant_std

    @classmethod
    def check(cls, options, context):
        yield from above(options, std=0, embedding=0, output=0)
        yield from above(options, "null is no limit.", cut=0)

    def spread(self, outputs: int, inputs: int) -> float:
        """The standard deviation of a matrix with these numbers of outputs and inputs."""
        return self.constant_std

    def std(self, matrix: Matrix) -> float:
        """The standard deviation of a matrix."""
        if matrix.looked_up and self.embedding is not None:
            return self.embedding
        std = self.spread(*(matrix.at_base or matrix.shape)[-2:]) * matrix.gain
        return std / math.sqrt(matrix.writes) if matrix.writes and self.depth_scaled else std

    def draw(self, matrix: Matrix, generator: torch.Generator) -> Tensor:
        """Returns the initial matrix, in fp32."""
        std, drawn = self.std(matrix), torch.empty(matrix.shape)
        if self.cut is None or std == 0 or (matrix.looked_up and self.embedding is not None):
            return drawn.normal_(0, std, generator=generator)
        limit = self.cut * std
        return nn.init.trunc_normal_(drawn, 0, std, -limit, limit, generator=generator)


class InitArguments:
    """What the model passes to the constructor of an initialisation."""

    dim: int  # channels of the residual stream
    stacks: Mapping[str, int]  # name of each stack -> its number of layers


INITS = Registry("init", caller_arguments=InitArguments, base=Init)


@INITS.register("gpt2", also_called=("gpt",), similar=("normal",))
class GPT2(Init):
    """N(0, std^2) for every matrix, whatever its shape (Radford et al., 2019, and the released
    GPT-2).

    With `cut` 2 and without depth_scaled it is BERT's (Devlin et al., 2019, the released code), as
    in timm's vision transformers. With `zero_output` every block is the identity initially, as in
    ReZero (Bachlechner et al., 2020, arXiv:2003.04887) and Fixup (Zhang et al., 2019,
    arXiv:1901.09321, section 3).
    """

    def __init__(
        self,
        *,
        std: float = 0.02,  # standard deviation
        depth_scaled: bool = True,  # whether residual writes are divided by sqrt(their number)
        zero_output: bool = False,  # whether residual writes start at 0
        # largest magnitude that is drawn, in standard deviations; null is no limit
        cut: float | None = None,
    ):
        super().__init__(depth_scaled, constant_std=std)
        self.zero_output = zero_output
        self.cut = cut

    def std(self, matrix):
        return 0.0 if self.zero_output and matrix.writes else super().std(matrix)


@INITS.register("llama")
class Llama(Init):
    """N(0, std^2), divided by sqrt(2 L) for matrices that write to the residual stream and for the
    matrix `up` of a gated network; N(0, 1 / dim) for an untied head, N(0, 1) for embeddings
    (OLMo-core 2.5, Ai2, 2026, and torchtitan, Meta, 2024).

    depth: L is the number of layers of the stack (`stack`), or the number of the layer, 1, 2, ...
    (`layer`, as OLMo-core's `llama_depth`). Numbers beyond 3 standard deviations are drawn again,
    except in embeddings. With tied embeddings the head is N(0, 1) too, and logits are large.
    """

    # OLMo-core: all matrices of experts and routers are divided.   Here: the same matrices of an
    # expert as of a dense network.

    cut = 3.0

    def __init__(
        self,
        dim: int,
        stacks: Mapping[str, int],
        *,
        std: float = 0.02,  # standard deviation
        embedding: float = 1.0,  # standard deviation of embeddings and learned positions
        # the number of layers in the divisor: all of the stack, or those up to this one
        depth: Literal["stack", "layer"] = "stack",
    ):
        super().__init__(False, embedding, std)
        self.dim = dim
        self.stacks = stacks
        self.by_layer = depth == "layer"

    def std(self, matrix):
        if matrix.info.role == "head":
            return self.dim**-0.5
        if matrix.looked_up or not (matrix.writes or matrix.info.multiplied_by_gate):
            return super().std(matrix)
        layers = self.stacks[matrix.stack]
        if self.by_layer and matrix.layer is not None:
            layers = matrix.layer + 1
        return super().std(matrix) / math.sqrt(2 * layers)


class ByShape(Init):
    """Base of initialisations whose standard deviation depends on a matrix's numbers of inputs and
    outputs. Matrices whose rows are looked up are drawn from N(0, embedding^2).
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
    """N(0, 1 / inputs): a product has the variance of its input (LeCun et al., 1998, "Efficient
    BackProp", section 4.6). For a few hundred inputs the standard deviation is several times larger
    than 0.02.
    """

    def spread(self, outputs, inputs):
        return inputs**-0.5


@INITS.register("xavier", also_called=("glorot",))
class Xavier(ByShape):
    """N(0, 2 / (inputs + outputs)): keeps the variance on average, forward and backward (Glorot and
    Bengio, 2010, eq. 16).
    """

    def __init__(
        self,
        *,
        embedding: float = 0.02,  # standard deviation of embeddings and learned positions
        depth_scaled: bool = False,  # whether residual writes are divided by sqrt(their number)
    ):
        super().__init__(embedding=embedding, depth_scaled=depth_scaled)

    def spread(self, outputs, inputs):
        return math.sqrt(2 / (inputs + outputs))


@INITS.register("kaiming", also_called=("he", "kaiming_normal"))
class Kaiming(ByShape):
    """N(0, 2 / inputs): keeps the variance after a ReLU (He et al., 2015, arXiv:1502.01852, eq.
    10).
    """

    def spread(self, outputs, inputs):
        return math.sqrt(2 / inputs)


@INITS.register("small", also_called=("small_init", "smallinit"))
class Small(Init):
    """N(0, 2 / (5 dim)) for every matrix, with the model's dim: the variance of Xavier for a
    feed-forward network of 4 dim channels (SmallInit: Nguyen and Salazar, 2019, arXiv:1910.05895,
    section 2.2).

    With `output` g, outputs of sublayers have the standard deviation g / (layers sqrt(dim)): 2 in
    GPT-NeoX (Black et al., 2022, arXiv:2204.06745, section 3.4), 1 in litgpt's code for it, which
    has `embedding` null.
    """

    def __init__(
        self,
        dim: int,
        stacks: Mapping[str, int],
        *,
        # standard deviation of embeddings; null is that of matrices
        embedding: float | None = 0.02,
        depth_scaled: bool = False,  # whether residual writes are divided by sqrt(their number)
        # g of residual writes' standard deviation g / (layers sqrt(dim)); null is as of others
        output: float | None = None,
    ):
        super().__init__(depth_scaled, embedding, math.sqrt(2 / (5 * dim)))
        self.stacks = stacks
        self.output = output
        self.inverse_root_dim = dim**-0.5

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        if options.output is not None and options.depth_scaled:
            yield Fault(
                "depth_scaled",
                "has no effect with init.output, which divides by the number of layers",
                fix="Leave it false.",
            )

    def std(self, matrix):
        if self.output is None or not matrix.writes:
            return super().std(matrix)
        return self.output * self.inverse_root_dim / self.stacks[matrix.stack] * matrix.gain


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
