"""The layers of a stack in an ejected file: their sublayers, and the tables that these read.

A table is a tensor that is computed once for the layers of a stack: a mask, the cosines of rotary
positions, a bias of scores.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from xformer_kit.eject.attentions import attention
from xformer_kit.eject.extras import place_table, shifted
from xformer_kit.eject.feed_forward import feed_forward
from xformer_kit.eject.masks import IN_TEXT, SLOTS, fills_rows, mask_expression
from xformer_kit.eject.placements import placement
from xformer_kit.eject.positions import rotary_calls
from xformer_kit.eject.tables import Around, Text
from xformer_kit.eject.writer import Writer, refused
from xformer_kit.mask import MASKS
from xformer_kit.mask.band import Causal, Full
from xformer_kit.model.stack import Stack
from xformer_kit.plan import BlockPlan, StackPlan
from xformer_kit.position import POSITIONS
from xformer_kit.position.content import TransformerXL

TYPES = {
    "mask": "Tensor | None",
    "rope": "Rope",
    "bias": "Tensor",
    "table": "Tensor",
    "row": "Tensor",
    "relative": "nn.Module",
    "earlier": "dict[str, Tensor]",
    "position": "Tensor | None",
    "source": "Tensor",
    "source_mask": "Tensor | None",
    "real": "Tensor | None",
    "places": "list[Tensor] | None",
    "mixed": "nn.Module",
}
# Variables of masks that have an axis for rows or heads.
WITH_ROWS = re.compile(r"\b(query|key|head|prefix)\b")


@dataclass(frozen=True)
class BlockText:
    """The class of a block."""

    name: str
    depth: bool  # whether its constructor takes the layer's number


class Layers:
    """The layers of a stack.

    kernel: of all their attentions, sdpa or reference.
    """

    def __init__(self, w: Writer, plan: StackPlan, stack: Stack, kernel: str):
        self.w, self.plan, self.stack, self.kernel = w, plan, stack, kernel
        self.is_encoder = plan.name == "encoder"
        self.reads_source = any(
            sub.cross for _, block in plan.own_blocks for sub in block.sublayers
        )

    @cached_property
    def texts(self) -> dict[tuple[int, str], Text]:
        """(layer, name) -> the text of each sublayer of the blocks that are owned."""
        return {
            (depth, sub.name): self._text(depth, block, sub)
            for depth, block in self.plan.own_blocks
            for sub in block.sublayers
        }

    def _text(self, depth: int, block: BlockPlan, sub: Any) -> Text:
        variant = "" if block.variant == "base" else block.variant.title().replace("_", "")
        self.w.prefix = variant or self.plan.name.capitalize()
        module = getattr(self.stack.layers[depth], sub.name)
        if sub.kind == "ffn":
            return feed_forward(self.w, sub, module)
        return attention(self.w, sub, module, self.around(self.group(depth, sub.name)))

    def own_depth(self, depth: int) -> int:
        """The first layer that calls the block of a layer."""
        return self.plan.block_index.index(self.plan.block_index[depth])

    def group(self, depth: int, name: str) -> Any:
        """The attention group of a sublayer."""
        attentions = self.plan.attention
        return attentions.groups[attentions.group_of[self.plan.block_index[depth]][name]]

    def around(self, group: Any) -> Around:
        """What the attentions of a group have."""
        position: Any = self.stack.position[group.position]
        if group.mask.sees_prefix and self.is_encoder and self.w.two_stacks:
            raise refused("mask", "prefix")
        if group.cross and not isinstance(group.mask, Full):
            raise refused("model.decoder.cross.mask", MASKS.name_of(type(group.mask)))
        if group.cross and set(position.enters) - {"embed"}:
            raise refused("model.decoder.cross.position", POSITIONS.name_of(type(position)))
        mask, full = "tensor", isinstance(group.mask, Full)
        if full and not group.cross and not self.is_encoder:
            mask = "none"
        elif self.kernel == "sdpa" and not group.cross:
            window = group.mask.band() is not None and not group.mask.sees_future
            mask = "causal" if isinstance(group.mask, Causal) else "window" if window else mask
        if self.kernel == "sdpa" and "bias" in position.enters:
            mask = "tensor"
        empty = group.mask.sees_future or not fills_rows(group.mask)
        future, padded = group.mask.sees_future, self.is_encoder
        return Around(self.kernel, position, mask, future, empty, group.cross, padded)

    @property
    def mask_heads(self) -> str:
        """The number of heads of masks that differ between heads."""
        counts = {g.heads for g in self.plan.attention.groups if g.mask.per_head}
        if len(counts) > 1:
            raise refused("mask", "per_head")
        return self.w.value("heads", *counts)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables that some layer takes, in order."""
        found = {table for text in self.texts.values() for table in text.takes}
        found |= {"source"} if self.reads_source else set()
        found |= {"places"} if "token_shift" in self.w.extras and self.is_encoder else set()
        return tuple(table for table in TYPES if table in found)

    def block(self, depth: int, block: BlockPlan) -> BlockText:
        """Writes the class of a block."""
        module, takes_depth = self.stack.layers[depth], False
        texts = {sub.name: self.texts[depth, sub.name] for sub in block.sublayers}
        placements, groups = [], []
        variant = "" if block.variant == "base" else block.variant.title().replace("_", "")
        self.w.prefix = variant or self.plan.name.capitalize()
        for group in block.groups:
            key = "_".join(sub.name for sub in group)
            multipliers = {module.multipliers[sub.name] for sub in group}
            one = module.placement[key]
            call, scaled = placement(self.w, one, len(group), self.plan.dropout, multipliers)
            placements.append((key, call))
            groups.append((key, ", ".join(self._function(sub, texts[sub.name]) for sub in group)))
            takes_depth |= scaled
        takes_depth |= any("(c, depth" in text.call for text in texts.values())
        name = self.w.part(
            "block",
            "Block",
            sublayers=tuple((name, text.call) for name, text in texts.items()),
            placements=tuple(placements),
            groups=tuple(groups),
            tables="".join(f", {table}: {self._type(table)}" for table in self.tables),
            depth=takes_depth,
            words=" and ".join(text.call.partition("(")[0] for text in texts.values()),
        )
        return BlockText(name, takes_depth)

    def _type(self, table: str) -> str:
        """The type of a table that blocks take."""
        absent = table == "rope" and any(one[table] == "None" for one in self.expressions)
        return TYPES[table] + " | None" * absent

    @cached_property
    def expressions(self) -> list[dict[str, str]]:
        """The expression of each table, None if it has none, for each layer."""
        return [self._of_layer(depth) for depth in range(len(self.plan.blocks))]

    def _of_layer(self, depth: int) -> dict[str, str]:
        found = dict.fromkeys(self.tables, "None")
        found |= {"source": "source"} if self.reads_source else {}
        found |= {"places": place_table(self.w)} if "places" in found else {}
        for sub in self.plan.blocks[depth].sublayers:
            text = self.texts[self.own_depth(depth), sub.name]
            for table in text.takes:
                if table in text.absent:
                    continue
                expression = self._expression(table, depth, sub)
                if found[table] not in ("None", expression):
                    raise refused(f"model.{self.plan.name}.layout", sub.name)
                found[table] = expression
        return found

    def _expression(self, table: str, depth: int, sub: Any) -> str:
        """The expression of a table of a sublayer."""
        if table == "real":
            return "real" if self.is_encoder else "source_real" if sub.cross else "None"
        group = self.group(depth, sub.name)
        key = f'"{group.position}"'
        if self.plan.attention.positions[group.position].layer is not None:
            key = 'f"layer_{k}"'
        module = f"self.position[{key}]"
        if table == "rope":
            position: Any = self.stack.position[group.position]
            attn = sub.context.attn
            return rotary_calls(self.w, position, attn.head_dim, attn.head_dim_option)[1]
        simple = {
            "bias": f"{module}(position, x.dtype)",
            "table": f"{module}.table()",
            "row": f"{module}.row(position)",
            "source_mask": "source_mask",
            "relative": module,
            "earlier": "earlier",
            "mixed": 'self.extra["value_residual"].layers[str(k)]',
            "position": "position",
        }
        xl = isinstance(self.stack.position[group.position], TransformerXL)
        if xl and self.is_encoder:
            simple["position"] = "None if real is None else position"
        return simple.get(table) or self._mask(group, simple["bias"])

    def _mask(self, group: Any, bias: str) -> str:
        """The expression of the mask, with the bias of its position for torch's function."""
        around, sdpa = self.around(group), self.kernel == "sdpa"
        if isinstance(group.mask, Full):
            seen = "seen" if self.is_encoder else ""
        else:
            places = IN_TEXT if self.is_encoder else SLOTS
            seen = mask_expression(self.w, group.mask, places)
            seen = f"({seen})" + ("" if WITH_ROWS.search(seen) else "[None, None]")
            if around.mask == "window":
                return f"{seen} if t > {self.w.value('window', group.mask.band()[0] + 1)} else None"
            seen = f"both({seen}, seen)" if self.is_encoder else seen
        if not sdpa or "bias" not in around.position.enters:
            return seen or "None"
        if seen == "seen":
            return f"{bias} if seen is None else torch.where(seen, {bias}, -math.inf)"
        return f"torch.where({seen}, {bias}, -math.inf)" if seen else bias

    def _function(self, sub: Any, text: Text) -> str:
        """A sublayer as a function of its input."""
        arguments = [shifted(self.w, self.is_encoder)]
        arguments += (["source"] if sub.cross else []) + list(text.takes)
        if arguments == ["h"]:
            return f"self.{sub.name}"
        return f"lambda h: self.{sub.name}({', '.join(arguments)})"
