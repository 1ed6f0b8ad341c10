"""The context of a component: the other components of its sublayer and sizes of the model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xformer_kit.registry.messages import Options
from xformer_kit.registry.node import Node
from xformer_kit.registry.traits import AttentionTraits, MaskTraits, NormTraits, PositionTraits


@dataclass(frozen=True)
class Context:
    """The composition around a component, for `check(options, context)` and `cannot(options,
    context)`.

    `cannot` gets one sublayer of a block with the traits of its components, or, for an extra, all
    stacks. `check` runs before the composition is known and gets `path`, `dim`, `names` and
    `outer`.
    """

    # config path of the block, e.g. "model.decoder.variants.local", or of its cross attention,
    # "model.decoder.cross"; for `check` of the component
    path: str = ""
    stack: str = "decoder"  # name of its stack
    dim: int = 0  # channels of the residual stream
    layers: int = 0  # number of layers of the stack
    max_len: int = 0  # model.max_len, the longest text in tokens
    seq_len: int | None = None  # tokens of a training example
    names: Mapping[str, str] = field(default_factory=dict)  # kind -> name of the component
    options: Mapping[str, Node] = field(default_factory=dict)  # kind -> its node
    attn: AttentionTraits = None  # type: ignore[assignment]  # of its sublayer, if an attention
    mask: MaskTraits = None  # type: ignore[assignment]  # of its attention
    position: PositionTraits = None  # type: ignore[assignment]  # of its attention
    norm: NormTraits = None  # type: ignore[assignment]  # of its sublayer
    cross: bool = False  # whether it is an attention to another stack
    # names of linear maps of the sublayer's input that extras can change, such as q, k and v
    fusible: tuple[str, ...] = ()
    has_source: bool = False  # whether its stack has another stack to attend to
    mask_path: str = "mask"  # config path at which only these layers get another mask
    parallel: tuple[str, ...] = ()  # kinds of the sublayers of its group
    blocks: int = 0  # distinct blocks of the stack
    # Names of its trait `cross_layer` that a later layer takes from it, or it from an earlier one.
    exchanged_tensors: frozenset[str] = frozenset()
    device: str = "cpu"  # type of the device of the run
    precision: str = "auto"  # trainer.precision
    outer: Options | None = None  # options of the component that this one is an option of
    # for an extra: the plan of each stack. `blocks` has one for each layer, with `sublayers`, each
    # with `name`, `kind` (attn or ffn), `cross`, its options `component`, and `context`, which
    # `cannot` of its component gets
    stacks: tuple[Any, ...] = ()

    def changed(self, **values: Any) -> "Context":
        """Returns a copy with these fields. `dataclasses.replace` would call the constructor, which
        takes several times as long, and a check of a composition makes about 60 copies.
        """
        context = object.__new__(Context)
        vars(context).update(vars(self) | values)
        return context
