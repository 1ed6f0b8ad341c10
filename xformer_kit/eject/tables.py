"""The tables that attentions of an ejected file take: masks, rotations, biases of scores."""

from dataclasses import dataclass
from typing import Any

from xformer_kit.eject.positions import rotary_calls
from xformer_kit.eject.writer import Writer
from xformer_kit.position.content import Disentangled, Shaw
from xformer_kit.position.rotary import Rotary


@dataclass(frozen=True)
class Around:
    """What an attention's group has.

    mask: the tensor that is passed: "none"; "causal", none, because torch's function has the mask;
    "window", none if the text is not longer; or "tensor".
    """

    kernel: str
    position: Any
    mask: str
    sees_future: bool
    empty: bool  # whether a query may see no key
    cross: bool
    padded: bool = False  # whether there may be padding


@dataclass(frozen=True)
class Text:
    """The constructor of a sublayer, and the tables that its forward takes, in order; absent: those
    that are None here.
    """

    call: str
    takes: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


class Tables:
    """The tables that the forward of an attention's class takes.

    key: of the class, without its tables. channels: of a head, as the position sees them; field:
    the name of their number.
    """

    def __init__(self, w: Writer, key: Any, around: Around, channels: int, field: str = "head_dim"):
        rotate = None
        if isinstance(around.position, Rotary):
            rotate = rotary_calls(w, around.position, channels, field)[0]
        key = key, around.sees_future, around.empty, around.cross
        masks = set(w.instances((key, "mask"), around.mask))
        rotates = set(w.instances((key, "rotate"), rotate))
        self.mask = masks.pop() if len(masks) == 1 else "tensor" if around.sees_future else "some"
        self.mask = "some" if self.mask == "window" else self.mask
        used = rotates - {None}
        self.rope: bool | str = rotate is not None
        if len(rotates) > 1 and len(used) == 1:
            self.rope, rotate_name = "some", used.pop()
        else:
            rotate_name = rotate or ""
        self.takes: list[str] = []
        self.types: list[str] = []
        self.absent: list[str] = []
        sdpa = around.kernel == "sdpa"
        if self.mask in ("some", "tensor"):
            none = around.mask == "causal" and sdpa
            given = sdpa and "bias" in around.position.enters
            may_be_none = self.mask == "some" or (around.sees_future and not given)
            optional = " | None" if may_be_none else ""
            name = "source_mask" if around.cross else "mask"
            self.take(name, f"mask: Tensor{optional}", none)
        if self.rope:
            optional = " | None" if self.rope == "some" else ""
            self.take("rope", f"rope: Rope{optional}", rotate is None)
        if not sdpa and "bias" in around.position.enters:
            self.take("bias", "bias: Tensor")
        if isinstance(around.position, Disentangled):
            self.take("table", "table: Tensor")
            self.take("row", "row: Tensor")
        elif "scores" in around.position.enters:
            self.take("relative", "relative: nn.Module")
            if isinstance(around.position, Shaw):
                self.take("position", "position: Tensor")
            elif around.padded:
                self.take("position", "position: Tensor | None")
        if not sdpa and self.mask == "tensor" and around.empty:
            self.mask = "some"  # there is none without padding
        self.own = {
            "mask": self.mask,
            "rope": self.rope,
            "rotate": rotate_name,
            "kernel": around.kernel,
            "cross": around.cross,
        }

    @property
    def flags(self) -> dict[str, Any]:
        """The flags of the template."""
        return self.own | {
            "tables_of": "".join(f", {text}" for text in self.types),
            "bias_table": "bias" in self.takes,
            "position_taken": "position" in self.takes,
        }

    def text(self, call: str) -> Text:
        """The text of an attention with these tables."""
        return Text(call, tuple(self.takes), tuple(self.absent))

    def take(self, argument: str, text: str, absent: bool = False) -> None:
        """Adds a table, with the text of the argument; absent: it is None in this layer."""
        self.takes.append(argument)
        self.absent += [argument] * absent
        self.types.append(text)
