"""Stacks in an ejected file."""

import re
from collections.abc import Iterator
from typing import Any

from xformer_kit.eject.extras import JOINING, extra_modules
from xformer_kit.eject.layers import BlockText, Layers
from xformer_kit.eject.norms import norm_call
from xformer_kit.eject.positions import module_call
from xformer_kit.eject.writer import Writer, literal
from xformer_kit.model.stack import Stack
from xformer_kit.plan import StackPlan
from xformer_kit.position.absolute import LearnedPosition, Sinusoidal

FIELD = re.compile(r"(?<![\w.])c\.")


class StackWriter:
    """Writes a stack and its blocks."""

    def __init__(self, w: Writer, plan: StackPlan, stack: Stack, kernel: str):
        self.w, self.plan, self.stack = w, plan, stack
        self.layers = Layers(w, plan, stack, kernel)
        self.dim = w.value("dim", plan.dim)
        self.embed_dim = w.value(
            "dim" if plan.embed_dim == plan.dim else "embed_dim", plan.embed_dim
        )

    def write(self) -> str:
        """Writes the stack, and returns the name of its class."""
        plan, layers = self.plan, self.layers
        blocks = {plan.block_index[d]: layers.block(d, block) for d, block in plan.own_blocks}
        expressions = layers.expressions
        names = self._kinds(blocks, expressions)
        lines, loop = self._forward(expressions, names)
        self.w.prefix = plan.name.capitalize()
        positions, modules = self._positions(), self._extras(loop)
        fields = any(FIELD.search(text) for text in [*lines, loop["block_call"]])
        loop["block_call"] = FIELD.sub("self.c.", loop["block_call"])
        return self.w.part(
            "stack",
            plan.name.capitalize(),
            words=f"The layers of the {plan.name}, over one residual stream.",
            positions=positions,
            extras=tuple(modules.items()),
            lines=tuple(FIELD.sub("self.c.", line) for line in lines),
            fields=fields,
            **self._blocks(blocks, names, "kind" in loop["loop_names"]),
            **self._around(),
            **self._signature(),
            **loop,
        )

    def _kinds(
        self, blocks: dict[int, BlockText], expressions: list[dict[str, str]]
    ) -> tuple[str, ...]:
        """The name of each layer's kind: layers of one have the same class and tables."""
        kinds: dict[tuple[str, ...], str] = {}
        names = []
        for depth, block in enumerate(self.plan.blocks):
            text = blocks[self.plan.block_index[depth]]
            key = (text.name, *expressions[depth].values())
            if key not in kinds:
                taken = block.variant in kinds.values()
                kinds[key] = f"layer_{depth}" if taken else block.variant
            names.append(kinds[key])
        return tuple(names)

    def _blocks(
        self, blocks: dict[int, BlockText], names: tuple[str, ...], by_kind: bool
    ) -> dict[str, Any]:
        """The flags of the constructor. by_kind: whether tables are chosen by kind."""
        w, plan = self.w, self.plan
        prefix = f"{plan.name}_" if w.two_stacks else ""
        shared = plan.block_index != tuple(range(len(plan.blocks)))
        count = w.value(f"{prefix}layers", len(blocks))
        several = len({text.name for text in blocks.values()}) > 1
        pattern = w.value(f"{prefix}kinds", names) if several or by_kind else ""
        owned = tuple(names[depth] for depth, _ in plan.own_blocks)
        own_pattern = pattern
        if several and owned != names:
            own_pattern = w.value(f"{prefix}block_kinds", owned)
        kinds = {
            names[depth]: (names[depth], text.name, text.depth)
            for text, (depth, _) in zip(blocks.values(), plan.own_blocks, strict=True)
        }
        return {
            "kinds": tuple(kinds.values()) if several else tuple(kinds.values())[:1],
            "blocks": count,
            "order": literal(plan.block_index) if shared else f"range({count})",
            "shared": shared,
            "names": pattern if by_kind else "",
            "pattern": own_pattern,
        }

    def _around(self) -> dict[str, Any]:
        """The flags of what is before the first block and after the last."""
        w, plan, stack = self.w, self.plan, self.stack
        added = self.dim if plan.added_dim == plan.dim else self.embed_dim
        project = ""
        if plan.embed_dim != plan.dim:
            bias = ", bias=False" if plan.map_first else ""
            project = f"nn.Linear({self.embed_dim}, {self.dim}{bias})"
        norms = {"embed_norm": "", "final_norm": ""}
        if plan.embed_norm:
            norms["embed_norm"] = norm_call(w, stack.embed_norm, "norm", added)
        if plan.final_norm:
            norms["final_norm"] = norm_call(w, stack.norm, "norm", self.dim)
        dropout = w.options["dropout"]
        return {
            **norms,
            "project": project,
            "dropout": w.value("embed_dropout", dropout) if dropout else "",
        }

    def _positions(self) -> tuple[tuple[str, str], ...]:
        """The positions that are modules, and their calls."""
        added = self.dim if self.plan.added_dim == self.plan.dim else self.embed_dim
        padded = self.layers.is_encoder
        calls = {
            name: module_call(self.w, position, self.stack.position[name], added, padded)
            for name, position in self.plan.attention.positions.items()
        }
        return tuple((name, call) for name, call in calls.items() if call)

    def _extras(self, loop: dict[str, Any]) -> dict[str, str]:
        """The calls of extras; those that join inputs are added to the loop over layers."""
        prefix = f"{self.plan.name}_" if self.w.two_stacks else ""
        count = self.w.value(f"{prefix}layers", len(self.plan.own_blocks))
        modules = extra_modules(self.w, self.plan, self.stack, count)
        loop["joining"] = tuple(name for name in modules if name in JOINING)
        return modules

    def _signature(self) -> dict[str, Any]:
        """The flags of further arguments of forward."""
        signature, words = "", ""
        if self.layers.is_encoder:
            signature, words = ", real: Tensor | None = None", " real (b, t): False on padding."
        elif self.layers.reads_source:
            signature = ", source: Tensor, source_real: Tensor | None = None"
            words = " source (b, s, dim)."
        if self.stack.sees_prefix:
            signature += ", prefix: Tensor | None = None"
        return {"signature": signature, "more_words": words}

    def _forward(
        self, expressions: list[dict[str, str]], names: tuple[str, ...]
    ) -> tuple[list[str], dict[str, Any]]:
        """The lines of forward before its loop, and the flags of the loop."""
        used = " ".join(text for one in expressions for text in one.values())
        lines = [*self._embedding_lines(), *self._variable_lines(used)]
        if re.search(r"(?<!\.)\bposition\b|\bquery\b", used):
            lines[:0] = [line for line in self._position_lines() if line not in lines]
        if not self.layers.tables:
            call = "getattr(self, str(k))(x)"
        elif "layer_{k}" in used or all(one == expressions[0] for one in expressions):
            arguments = []
            for table, text in expressions[0].items():
                inline = "(k)" in text or "{k}" in text or table == "table"
                if text not in (table, "None") and not inline:
                    lines.append(f"{table} = {text}")
                    text = table
                arguments.append(f"({text})" if " if " in text else text)
            call = f"getattr(self, str(k))(x, {', '.join(arguments)})"
        else:
            mixed = [one.pop("mixed") for one in expressions if "mixed" in one]
            arguments = ["x", "*tables[kind]", *mixed[:1]]
            lines += _tables_by_kind(dict(zip(names, expressions, strict=True)))
            return lines, {
                "loop_names": "k, kind",
                "loop_over": "zip(self.order, self.kinds, strict=True)",
                "block_call": f"getattr(self, str(k))({', '.join(arguments)})",
            }
        return lines, {"loop_names": "k", "loop_over": "self.order", "block_call": call}

    def _variable_lines(self, used: str) -> Iterator[str]:
        """The lines that compute the variables of the tables' expressions."""
        if "source_mask" in used:
            yield "source_mask = None if source_real is None else source_real[:, None, None]"
        if self.layers.is_encoder and "seen" in used:
            yield "seen = None if real is None else real[:, None, None]"
        if "both(" in used:
            self.w.part("both", "both")
        if " t " in used:
            yield "t = x.shape[1]"
        if re.search(r"\b[ij]\b", used):
            length = "t" if " t " in used else "x.shape[1]"
            yield f"i = torch.arange({length}, device=x.device)[:, None]  # queries"
            yield "j = i.mT  # keys"
        if self.stack.sees_prefix:
            yield "if prefix is None:"
            yield "    prefix = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)"
        if "earlier" in self.layers.tables:
            yield "earlier: dict[str, Tensor] = {}  # keys and values for later layers"
        if "query" in used:
            yield "query, key = position[:, None, :, None], position[:, None, None]"
        if "head " in used:
            heads = self.layers.mask_heads
            yield f"head = torch.arange({heads}, device=x.device)[None, :, None, None]"

    def _position_lines(self) -> Iterator[str]:
        """The lines that compute positions."""
        yield "position = torch.arange(x.shape[1], device=x.device)[None]"
        if self.layers.is_encoder:
            yield "if real is not None:  # padding does not count"
            yield "    position = (real.long().cumsum(-1) - 1).clamp(min=0)"

    def _embedding_lines(self) -> Iterator[str]:
        """The lines before the first block: position, norm, map and dropout of embeddings."""
        plan = self.plan
        base = dict(self.stack.position.items()).get("base")
        if plan.embed_dim != plan.dim and plan.map_first:
            yield "x = self.project(x)"
        if isinstance(base, (LearnedPosition, Sinusoidal)):
            yield from self._position_lines()
            yield 'x = self.position["base"](x, position)'
        if plan.embed_norm:
            yield "x = self.embed_norm(x)"
        if plan.embed_dim != plan.dim and not plan.map_first:
            yield "x = self.project(x)"
        if self.w.options["dropout"]:
            yield "x = F.dropout(x, self.dropout, self.training)"
        if plan.placement["name"] == "ngpt":
            yield f"x = {self.w.part('unit', 'unit', eps=1e-6)}(x)"


def _tables_by_kind(by_kind: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yields the lines that compute the tables of each kind of layer."""
    named: dict[str, str] = {}  # expression -> variable
    for kind, tables in by_kind.items():
        for table, text in tables.items():
            if text not in (table, "None") and text not in named:
                named[text] = f"{table}_{kind}"
                yield f"{named[text]} = {text}"
    yield "tables = {"
    for kind, tables in by_kind.items():
        values = ", ".join(named.get(text, text) for text in tables.values())
        yield f'    "{kind}": ({values}{"," if len(tables) == 1 else ""}),'
    yield "}"
