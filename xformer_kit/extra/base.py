"""The contract of an extra: a feature added to a stack next to its blocks.

A config names any number of extras, `extra: {token_shift: {tokens: 1}}`; hooks run in the order of
the config. Every hook does nothing by default. A stack has one instance of each extra; its
parameters are named `decoder.extra.<name>.<parameter>`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from xformer_kit.registry import Context, Fault, Options, Registry
from xformer_kit.tensors import Info, SubmoduleInfo
from xformer_kit.tensors.report import Report
from xformer_kit.tensors.tokens import Tokens

State = tuple[Tensor, ...]  # tensors of the residual stream, each (b, t, dim)
Branch = Callable[[Tensor], Tensor]  # a sublayer of which only the input is free
Caches = Mapping[str, Any]  # name -> Cache


class ExtraInput(NamedTuple):
    """The input of a hook in addition to the tensor that it changes."""

    tokens: Tokens  # of this call, (b, t)
    key: Tokens  # the same after those that are cached
    depth: int = 0  # the layer, counted from 0
    # What `prepare` and this extra's earlier hooks returned. Inside a block: what `prepare` and
    # this layer's `before_layer` returned.
    memory: Mapping[str, Tensor] = {}
    cache: Caches | None = None  # of this extra; None outside of generation
    placement: Any = None  # class of the stack's placement
    # Tensors that attentions and the hook `values` pass to later layers, by name. Only in a block.
    cross_layer_state: Any = None


class Chosen(NamedTuple):
    """The tokens of each row that enter a layer; the state of the others does not change."""

    at: Tensor  # (b, n): indices among the tokens of this call, ascending
    real: Tensor | None = None  # (b, n), False where a row has fewer; None: all have n
    weight: Tensor | None = None  # (b, n), factor on the layer's change of the state; None: 1


class Prediction(NamedTuple):
    """A token that is predicted in training in addition to the next one."""

    name: str  # of its mean loss in the report
    ahead: int  # its place after the token that predicts it; the next token's is 1
    weight: float  # of its mean loss


class Extra(nn.Module):
    """Base of all extras.

    layer_class: the class of what `layer_module` returns, if it is another.
    layers: with a `layer_class`, its modules by the depth of the first layer that has them.
    predictions: what is predicted from the states that `multi_token_states` returns, in their
        order.
    front_tokens: number of tokens that `front` puts in front of the text.

    Hooks that change the stream receive the placement's state, a tuple of tensors. To change each
    residual stream x of it by a function of an earlier state, use
    `layer.placement.combine_streams`.
    """

    layer_class: "type[Extra] | None" = None
    predictions: Sequence[Prediction] = ()
    front_tokens: int = 0

    parameter_info: Mapping[str, Info] = {"": SubmoduleInfo({"normalised": "dim"})}

    def __init__(self) -> None:
        super().__init__()
        if self.layer_class is not None:
            self.layers = nn.ModuleDict()

    def add_blocks(self, block: Callable[[int], nn.Module]) -> None:
        """Called once, with a function that returns a new block like that of layer `depth`, with
        the modules of all extras for this layer; only for the stack whose output the head reads.
        """

    def prepare(self, layer: ExtraInput) -> dict[str, Tensor]:
        """Returns tensors for the other hooks, `layer.memory`, once per forward of the stack."""
        return {}

    def front(self) -> Tensor:
        """The embeddings (front_tokens, dim) of tokens in front of every text, or of each document
        in a row. The stack's layers and caches hold them like tokens of the text, and its output
        leaves them out. Their position is that of the text's first token, and their id is -1.
        """
        raise NotImplementedError

    def embed(self, x: Tensor, layer: ExtraInput) -> Tensor:
        """The embeddings (b, t, dim), after their norm and dropout."""
        return x

    def before_layer(self, state: State, layer: ExtraInput) -> tuple[State, dict[str, Tensor]]:
        """The state that enters a layer, and additions to the memory."""
        return state, {}

    def chooses(self, depth: int) -> bool:
        """Whether `choose` is called for layer `depth`."""
        return False

    def choose(self, state: State, layer: ExtraInput) -> tuple[Chosen, dict[str, Tensor]]:
        """The tokens that enter a layer, and additions to the memory. The layer runs on these only:
        its attention, masks and caches hold no others, and slots count them; positions are kept.
        """
        raise NotImplementedError

    def after_layer(self, state: State, layer: ExtraInput) -> tuple[State, dict[str, Tensor]]:
        """The state that leaves a layer, and additions to the memory."""
        return state, {}

    def report(self, layer: ExtraInput) -> Report:
        """Losses and figures, from the memory after the last layer: `loss` is added to the loss,
        other entries are summed over the micro-batches and ranks of a step and passed to
        `after_step(report)` and `figures(report)`, if the extra has them.
        """
        return {}

    def final(self, state: State, layer: ExtraInput) -> State:
        """The state before the final norm."""
        return state

    def multi_token_states(
        self, state: State, last: Any, layer: ExtraInput
    ) -> dict[str, tuple[State, dict[str, Tensor]]]:
        """States from which `predictions` are made (multi-token prediction), only in training: name
        of a module of this extra -> (state before `final`, the module's report). `state` and `last`
        (BlockInput) are what the block of the last layer received.
        """
        return {}

    def layer_module(self, depth: int, sublayers: Mapping[str, nn.Module]) -> "Extra | None":
        """Returns the module whose `wrap`, `sublayer_output`, `projected` and `values` a block
        calls; None if it has none. sublayers: those of the block, by name.

        An extra with parameters for each layer sets `layer_class`, returns a module with those of
        one layer and keeps it, `self.layers[str(depth)] = module`. All layers then share one
        compiled graph. Layers that share a block have those of the first. Called once for each
        block, before `caches`.
        """
        if self.layer_class is None:
            return self
        modules: Any = dict(self.layers.items())
        return modules.get(str(depth))

    def wrap(self, name: str, branch: Branch, layer: ExtraInput) -> Branch:
        """Returns the function that replaces a sublayer (b, t, dim) -> (b, t, dim), such as its
        `branch` with another input or output.
        """
        return branch

    def sublayer_output(self, name: str, h: Tensor, layer: ExtraInput) -> Tensor:
        """What a sublayer adds to the stream (b, t, dim), after dropout."""
        return h

    def projected(self, name: str, part: str, y: Tensor, layer: ExtraInput) -> Tensor:
        """The output y (b, t, channels) of a linear map of a sublayer's input: `part` is the name
        of the map, such as q, k and v, before norms and rotation, or gate and up; the channels are
        those of the map's weight. Not called in cross attentions, nor within experts that a router
        selects.
        """
        return y

    def values(self, v: Tensor, x: Tensor, layer: ExtraInput) -> Tensor:
        """Values (b, kv_heads, t, v_head_dim) of an attention to the stack's own tokens, made from
        its input x (b, t, dim), before they are cached.
        """
        return v

    def constrain(self, model: nn.Module) -> None:
        """Called after the initial weights are drawn, and after every optimizer step, with the
        model; only for the stack whose output the head reads.
        """

    def caches(self, rows: int, length: int, like: Tensor) -> dict[str, Any]:
        """Empty caches of what the hooks need of earlier tokens, by name, for `rows` sequences of
        at most `length` tokens, with the device and dtype of `like`.
        """
        return {}

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Faults of the extra in a model with `context.stacks`."""
        yield from ()

    @classmethod
    def overrides(cls, hook: str) -> bool:
        """Whether it, or its `layer_class`, overrides a hook."""
        own = getattr(cls, hook) is not getattr(Extra, hook)
        return own or (cls.layer_class is not None and cls.layer_class.overrides(hook))


class ExtraArguments:
    """What the model passes to the constructor of an extra, of which each stack has one."""

    dim: int  # channels of the residual stream
    layers: int  # number of layers of the stack
    vocab_size: int  # rows of the embeddings of the stack's tokens
    # for each layer its sublayers, name -> kind: {0: {"attn": "attn", "cross": "attn", "ffn":
    # "ffn"}, ...}
    sublayers: dict[int, dict[str, str]]
    block_index: tuple[int, ...]  # for each layer the index of its block; layers may share one
    kv_heads: int  # value heads of the base block's first attention
    v_head_dim: int  # channels of a head of its values
    norm: Callable[[int], nn.Module]  # creates a norm of the base block over so many channels


EXTRAS = Registry("extra", caller_arguments=ExtraArguments, base=Extra, several=True)


def first_layers(block_index: Sequence[int]) -> list[int]:
    """The first layer of each block."""
    return [depth for depth, block in enumerate(block_index) if block not in block_index[:depth]]


def to_memory(state: State, name: str) -> dict[str, Tensor]:
    """Returns a state as additions to the memory."""
    return {f"{name}.{i}": x for i, x in enumerate(state)}


def from_memory(memory: Mapping[str, Tensor], name: str) -> State:
    """Returns the state that `to_memory` put into the memory."""
    return tuple(x for key, x in memory.items() if key.rpartition(".")[0] == name)
