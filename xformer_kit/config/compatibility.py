"""Components of a plan that cannot be composed."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from xformer_kit.extra import EXTRAS
from xformer_kit.kernel import refusal
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import (
    KINDS,
    OUTPUT_LAWS,
    STACKS,
    BlockPlan,
    Node,
    StackPlan,
    as_node,
    layout_path,
    provenance_of,
)
from xformer_kit.position import POSITIONS
from xformer_kit.registry import Context


def block_faults(config: Node, plan: StackPlan, block: BlockPlan, task: bool) -> Iterator[str]:
    """Components of a block that cannot be composed."""
    base = plan.variants["base"]
    if block is not base:
        states = [_states(b) for b in (base, block)]
        if states[0] != states[1]:
            yield (
                f"{block.path}.placement: '{block.nodes['placement']['name']}' carries {states[1]}"
                f" and the stack's '{base.nodes['placement']['name']}' {states[0]}; a stack has one"
                " kind of residual stream. Leave it out, or give the stack the same at"
                f" {provenance_of('placement', base)}."
            )
    for group in block.groups:
        if len({str(sub.norm) for sub in group}) > 1:
            names = ", ".join(sub.name for sub in group)
            yield (
                f"{block.path}.layout: {names} run in parallel, and the norms of a parallel group"
                " are of one kind; give the norm to all of them, or to none."
            )
    for sub in block.sublayers:
        context = sub.context
        yield from _of_layout(block, sub, context)
        embeds = "embed" in context.position.enters
        if sub.cross and embeds:
            yield (
                f"{layout_path(block, sub)}.position: '{sub.position['name']}' is added to the"
                " embeddings, and has no place in an attention to another stack; use"
                " position=none, or one that enters in the attention."
            )
        elif sub.position != base.nodes["position"] and embeds:
            yield (
                f"{block.path}.position: '{sub.position['name']}' is added to the embeddings, which"
                f" belong to the whole stack; set it as position={sub.position['name']}."
            )
        said = {
            kind: list(_meets(config, KINDS[kind][context.names[kind]], kind, context, block, sub))
            for kind in _kinds_of(sub, embeds)
        }
        yield from (fault for faults in said.values() for fault in faults)
        able = [
            kind for kind, faults in said.items() if not faults
        ]  # of the others there is enough said
        if task:
            speaks = plan.name == [stack for stack in STACKS if stack in config["model"]][-1]
            yield from _task(as_node(config["task"])["name"], context, block, sub, able, speaks)
        if config["data"].get("documents"):
            yield from _broken(("documents",), "data.documents=true", context, block, able)


def extra_faults(config: Mapping[str, Any], plans: list) -> Iterator[str]:
    """Extras that cannot be used in the model."""
    attentions = [sub for plan in plans for block in plan.blocks for sub in block.sublayers]
    attentions = [sub for sub in attentions if sub.kind == "attn" and not sub.cross]
    unchanged = [sub for sub in attentions if not sub.context.attn.values]
    for name, options in (config.get("extra") or {}).items():
        extra = EXTRAS[name]
        reason = extra.cannot(options, plans)
        if extra.overrides("values") and (unchanged or not attentions):
            reason = "changes values of attentions, and no layer has one; leave it out"
            if unchanged:
                reason = (
                    f"changes values, which attn '{unchanged[0].component['name']}' does not give"
                    " to extras; use attn=multi_head, or leave it out"
                )
        if reason:
            yield f"extra.{name}{'' if reason.startswith('.') else ': '}{reason.rstrip('.')}."


def _kinds_of(sub, embeds: bool) -> list[str]:
    """The kinds of parts that a sublayer has, and the position that embeddings take."""
    return [
        kind
        for kind in KINDS
        if kind in (sub.kind, "norm", "placement")
        or (kind != "ffn" and sub.kind == "attn")
        or (kind == "position" and embeds)
    ]


def embedding_faults(config: Node, block: BlockPlan) -> Iterator[str]:
    """Faults of the position that is added to the embeddings, of a base that no layer uses."""
    sub = block.sublayers[0]
    if "embed" in sub.context.position.enters:
        position = POSITIONS[sub.context.names["position"]]
        yield from _meets(config, position, "position", sub.context, block, sub)


def _task(
    task: str, context: Context, block, sub, kinds: Iterable[str], speaks: bool
) -> Iterator[str]:
    objective = OBJECTIVES[task]
    if sub.kind == "attn" and (reason := objective.cannot(context)):
        yield f"{provenance_of('mask', block)}: {reason.rstrip('.')}."
    laws = [law for law in objective.laws if speaks or law not in OUTPUT_LAWS]
    yield from _broken(laws, f"task={task}", context, block, kinds)


def _broken(
    laws: Iterable[str], needed_by: str, context: Context, block, kinds: Iterable[str]
) -> Iterator[str]:
    """Parts of these kinds that break a law that the run needs."""
    for kind in kinds:
        name, registry = context.names[kind], KINDS[kind]
        broken = registry.broken(context.options[kind])
        for law in laws:
            if law in broken:
                inner = [
                    f"{kind}.{key}"
                    for key, r in registry.inner(name).items()
                    if broken[law].startswith(f"{r.kind} '")
                ]
                yield (
                    f"{provenance_of(kind, block)}: '{name}' breaks the law of {law}"
                    f" ({broken[law].rstrip('.')}), which {needed_by} needs. Choose another"
                    f" {inner[0] if inner else kind}."
                )


def _of_layout(block, sub, context: Context) -> Iterator[str]:
    """Faults of what the layout says of a sublayer."""
    for kind, node in (
        (sub.kind, sub.component),
        ("mask", sub.mask),
        ("position", sub.position),
        ("norm", sub.norm),
    ):
        if node != block.nodes[kind]:
            where = (
                layout_path(block, sub) if kind == sub.kind else f"{layout_path(block, sub)}.{kind}"
            )
            yield from KINDS[kind].faults(node, where, context)


def _states(block) -> str:
    node = block.nodes["placement"]
    return KINDS["placement"][node["name"]].carries(node)


def _meets(config, part: Any, kind: str, context: Context, block, sub) -> Iterator[str]:
    if kind == "kernel":
        if (
            sub.kind == "attn"
            and (name := context.names["kernel"]) != "auto"
            and (reason := refusal(name, context))
        ):
            yield (
                f"{provenance_of('kernel', block)}: '{name}' cannot: {reason.rstrip('.')}. Use"
                " kernel=auto or kernel=reference."
            )
    elif hasattr(part, "cannot") and (reason := part.cannot(context)):
        own = {
            sub.kind: sub.component,
            "mask": sub.mask,
            "position": sub.position,
            "norm": sub.norm,
        }.get(kind, block.nodes[kind])
        here = layout_path(block, sub) if kind == sub.kind else f"{layout_path(block, sub)}.{kind}"
        path = provenance_of(kind, block) if own == block.nodes[kind] else here
        yield (  # '.option: ' is of one option
            f"{path}{'' if reason.startswith('.') else ': '}{reason.rstrip('.')}."
        )
