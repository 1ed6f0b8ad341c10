"""Canon layers: short convolutions over the last few tokens, in and around the sublayers."""

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

from xformer_kit.extra import EXTRAS, Extra, ExtraInput
from xformer_kit.registry import Fault, at_least
from xformer_kit.tensors import ShortConvolution, StateCache, SubmoduleInfo
from xformer_kit.tensors.tokens import document_segments

Place = Literal["A", "B", "C", "D"]
QKV = "q", "k", "v"
INPUT = "input"  # name of the convolution of a sublayer's input


class CanonLayer(Extra):
    """The convolutions of one layer: name of a sublayer -> name of one of its linear maps, or
    INPUT -> convolution.
    """

    def __init__(self, channels: Mapping[str, Mapping[str, int]], tokens: int, residual: bool):
        super().__init__()
        self.convolutions = nn.ModuleDict(
            {
                name: nn.ModuleDict({part: ShortConvolution(n, tokens) for part, n in of.items()})
                for name, of in channels.items()
            }
        )
        self.residual = residual
        self.parameter_info = {
            f"convolutions.{name}.{part}": SubmoduleInfo(
                {"convolved": "dim" if part == INPUT else f"{name}_{part}"}
            )
            for name, of in channels.items()
            for part in of
        }

    def wrap(self, name, branch, layer):
        return lambda x: branch(self.projected(name, INPUT, x, layer))

    def projected(self, name, part, y, layer):
        if name not in self.convolutions or part not in self.convolutions[name]:
            return y
        cache = None if layer.cache is None else layer.cache[f"{layer.depth}.{name}.{part}"]
        if cache is None:
            past = y.new_zeros(len(y), self.convolutions[name][part].width - 1, y.shape[-1])
        else:
            (past,) = cache.tensors
        real, segment = layer.tokens.real, layer.memory.get("segment")
        out, past = self.convolutions[name][part](y, past, real, segment)
        if cache is not None:
            cache.append(past)
        return y + out if self.residual else out


@EXTRAS.register("canon", also_called=("canon_layers",))
class Canon(Extra):
    """h_t + sum_j w_j h_{t-j}, j = 0, ..., tokens - 1, with learned vectors w_j, over the real
    tokens of a document (Allen-Zhu, 2025, "Physics of Language Models: Part 4.1, Architecture
    Design and the Magic of Canon Layers", section 4): at A for the input h of each attention to
    the stack's own tokens, at B for its queries, keys and values before their norms and rotation,
    at C for the input of each feed-forward network, and at D for its hidden channels before the
    activation. Without `residual` h_t is left out.
    """

    layer_class = CanonLayer
    variants = [{"at": [place]} for place in "ABCD"] + [{"tokens": 2, "residual": False}]

    def __init__(
        self,
        dim: int,
        sublayers: dict[int, dict[str, str]],
        block_index: tuple[int, ...],
        *,
        at: tuple[Place, ...] = ("A", "B", "C", "D"),  # where the convolutions are
        tokens: int = 4,  # of a convolution, the token itself included
        residual: bool = True,  # whether the result is added to h
    ):
        super().__init__()
        self.dim = dim
        self.kinds = sublayers
        self.block_index = block_index
        self.at = at
        self.tokens = tokens
        self.residual = residual

    def layer_module(self, depth, sublayers):
        if str(depth) not in self.layers:
            channels = {
                name: self._channels(kind, sublayers[name])
                for name, kind in self.kinds[depth].items()
                if not name.startswith("cross")
            }
            self.layers[str(depth)] = CanonLayer(channels, self.tokens, self.residual)
        return super().layer_module(depth, sublayers)

    def _channels(self, kind: str, sublayer: Any) -> dict[str, int]:
        """The number of channels of each convolution of a sublayer."""
        of_input, of_parts = ("A", "B") if kind == "attn" else ("C", "D")
        found = {INPUT: self.dim} if of_input in self.at else {}
        for part in sublayer.fusible if of_parts in self.at else ():
            found[part] = len(getattr(sublayer, part).weight)
        return found

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "tokens", tokens=2)
        if not options.at or len(set(options.at)) < len(options.at):
            got = f"[{', '.join(options.at)}]"
            yield Fault("at", "must name each place once", got=got, fix="Try [A, B].")

    @classmethod
    def cannot(cls, options, context):
        for stack in context.stacks:
            for sub in (sub for block in stack.blocks for sub in block.sublayers if not sub.cross):
                place, parts = ("B", QKV) if sub.kind == "attn" else ("D", ("up",))
                if place in options.at and not set(parts) <= set(sub.context.fusible):
                    name = sub.component["name"]
                    maps = "q, k and v" if place == "B" else "up"
                    rule = f"'{place}' changes {maps}, and {sub.kind} '{name}' has none"
                    yield Fault("at", rule, fix=f"Leave {place} out.")
                    return

    def prepare(self, layer: ExtraInput) -> dict[str, Tensor]:
        segment = document_segments(layer.tokens, layer.key)
        return {} if segment is None else {"segment": segment}

    def caches(self, rows, length, like):
        found = {}
        for depth, block in enumerate(self.block_index):
            layer: Any = self.layers[str(self.block_index.index(block))]
            for name, of_sublayer in layer.convolutions.items():
                for part, convolution in of_sublayer.items():
                    shape = rows, self.tokens - 1, len(convolution.weight)
                    found[f"{depth}.{name}.{part}"] = StateCache(like.new_zeros(shape))
        return found

    def extra_repr(self) -> str:
        return f"at={''.join(self.at)}, tokens={self.tokens}"
