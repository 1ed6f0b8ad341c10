"""Components of a plan that cannot be composed."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from xformer_kit.extra import EXTRAS
from xformer_kit.kernel import cannot_compute
from xformer_kit.objective import OBJECTIVES
from xformer_kit.placement import PLACEMENTS
from xformer_kit.plan import (
    KINDS,
    OUTPUT_LAWS,
    BlockPlan,
    ModelPlan,
    Node,
    StackPlan,
    SublayerPlan,
    as_node,
    layout_path,
    provenance_of,
)
from xformer_kit.registry import Context, Fault, Faults, independent_check


class ComponentAt(NamedTuple):
    """A component of a sublayer."""

    stack: str
    variant: str
    sublayer: str
    kind: str


Refusals = Mapping[ComponentAt, list[Fault]]


def refusals(stack: StackPlan, block: BlockPlan) -> dict[ComponentAt, list[Fault]]:
    """What the components of a block yield in `cannot`, with paths inside their nodes."""
    return {
        ComponentAt(stack.name, block.variant, sub.name, kind): list(_refusals(sub, kind))
        for sub in block.sublayers
        for kind in _kinds(sub)
    }


def _kinds(sub: SublayerPlan) -> list[str]:
    """The kinds of components that a sublayer has, and the position added to the embeddings."""
    attends = sub.kind == "attn"
    return [
        kind
        for kind in KINDS
        if kind in (sub.kind, "norm", "placement")
        or (attends and kind != "ffn")
        or (kind == "position" and "embed" in sub.context.position.enters)
    ]


@independent_check
def _refusals(sub: SublayerPlan, kind: str) -> Faults:
    name = sub.context.names[kind]
    if kind != "kernel":
        yield from KINDS[kind].cannot(sub.context.options[kind], sub.context)
    elif name != "auto" and (reason := cannot_compute(name, sub.context)):
        yield Fault("", f"'{name}' cannot: {reason}", fix="Use kernel=auto or kernel=reference.")


def path_of(block: BlockPlan, sub: SublayerPlan, kind: str) -> str:
    """The config path that set a sublayer's component of a kind."""
    if sub.context.options[kind] == block.nodes[kind]:
        return provenance_of(kind, block)
    return layout_path(block, sub) + ("" if kind == sub.kind else f".{kind}")


@independent_check
def block_faults(
    config: Node, model: ModelPlan, stack: StackPlan, block: BlockPlan, task: bool, found: Refusals
) -> Faults:
    """Components of a block that cannot be composed; found: the block's `refusals`."""
    yield from _of_placement(stack.base, block)
    for group in block.groups:
        if any(sub.norm != group[0].norm for sub in group):
            names = ", ".join(sub.name for sub in group)
            yield Fault(
                f"{block.path}.layout",
                f"{names} run in parallel, and the norms of a parallel group are of one kind",
                fix="Give the norm to all of them, or to none.",
            )
    for sub in block.sublayers:
        yield from _of_embedding(stack.base, block, sub)
        whole = []  # kinds without a fault
        for kind in _kinds(sub):
            at = ComponentAt(stack.name, block.variant, sub.name, kind)
            faults = [fault for fault in found[at] if not fault.unused]
            yield from (fault.at(path_of(block, sub, kind)) for fault in faults)
            whole += [] if faults else [kind]
        if task:
            yield from _of_task(config, block, sub, whole, stack is model.output)
        if config["data"].get("documents"):
            yield from _broken(("documents",), "data.documents=true", block, sub, whole)


def embedding_faults(block: BlockPlan) -> Faults:
    """Faults of the position that is added to the embeddings, of a base that no layer uses."""
    sub = block.sublayers[0]
    if "embed" in sub.context.position.enters:
        path = path_of(block, sub, "position")
        yield from (fault.at(path) for fault in _refusals(sub, "position"))


@independent_check
def extra_faults(config: Node, model: ModelPlan) -> Faults:
    """Extras that cannot be used in the model."""
    attentions = [
        sub
        for plan in model.stacks
        for block in plan.blocks
        for sub in block.sublayers
        if sub.kind == "attn" and not sub.cross
    ]
    unchanged = [sub for sub in attentions if not sub.context.attn.values]
    context = Context(dim=model.dim, stacks=model.stacks)
    for name, options in model.extras.items():
        path = f"extra.{name}"
        if EXTRAS[name].overrides("values") and not attentions:
            yield Fault(
                path, "changes values of attentions, and no layer has one", fix="Leave it out."
            )
        elif EXTRAS[name].overrides("values") and unchanged:
            attn = unchanged[0].component["name"]
            yield Fault(
                path,
                f"changes values, which attn '{attn}' does not give to extras",
                fix="Use attn=multi_head, or leave it out.",
            )
        else:
            found = EXTRAS.cannot({"name": name, **options}, context)
            yield from (fault.at(path) for fault in found)


@independent_check
def _of_placement(base: BlockPlan, block: BlockPlan) -> Faults:
    """A block whose residual stream is another than that of its stack."""
    streams = [_streams(b.nodes["placement"]) for b in (base, block)]
    if streams[0] != streams[1]:
        name, other = (b.nodes["placement"]["name"] for b in (block, base))
        yield Fault(
            f"{block.path}.placement",
            f"'{name}' carries {streams[1]} and the stack's '{other}' {streams[0]}; a stack has one"
            " kind of residual stream",
            fix=(
                f"Leave it out, or give the stack the same at {provenance_of('placement', base)}."
            ),
        )


def _streams(node: Node) -> str:
    streams = PLACEMENTS[node["name"]].streams(node)
    if isinstance(streams, str):
        return f"all earlier {streams}"
    return f"{streams} stream{'s' * (streams > 1)}"


@independent_check
def _of_embedding(base: BlockPlan, block: BlockPlan, sub: SublayerPlan) -> Faults:
    """A position that is added to the embeddings where another component of the stack has one."""
    if "embed" not in sub.context.position.enters:
        return
    name = sub.position["name"]
    if sub.cross:
        yield Fault(
            f"{layout_path(block, sub)}.position",
            f"'{name}' is added to the embeddings, and has no place in an attention to another"
            " stack",
            fix="Use position=none, or one that enters in the attention.",
        )
    elif sub.position != base.nodes["position"]:
        yield Fault(
            f"{block.path}.position",
            f"'{name}' is added to the embeddings, which belong to the whole stack",
            fix=f"Set it as position={name}.",
        )


def _of_task(
    config: Node, block: BlockPlan, sub: SublayerPlan, kinds: Iterable[str], output: bool
) -> Faults:
    """What the task cannot train; output: whether the head reads the stack."""
    node = as_node(config["task"])
    if sub.kind == "attn":
        path = provenance_of("mask", block)
        yield from (fault.at(path) for fault in OBJECTIVES.cannot(node, sub.context))
    needed = OBJECTIVES[node["name"]].laws
    laws = [law for law in needed if output or law not in OUTPUT_LAWS]
    yield from _broken(laws, f"task={node['name']}", block, sub, kinds)


@independent_check
def _broken(
    laws: Iterable[str], needed_by: str, block: BlockPlan, sub: SublayerPlan, kinds: Iterable[str]
) -> Faults:
    """Components of these kinds that break a law that the run needs: of each the first such law,
    for another component is the fix of all.
    """
    for kind in kinds:
        broken = KINDS[kind].broken_laws(sub.context.options[kind])
        told = set[tuple[str, str]]()
        for law in laws:
            if law in broken and broken[law][1:3] not in told:
                told.add(broken[law][1:3])
                inner = f".{broken[law].option}" if broken[law].option else ""
                yield Fault(
                    provenance_of(kind, block),
                    f"'{sub.context.names[kind]}' breaks the law of {law} ({broken[law]}), which"
                    f" {needed_by} needs",
                    fix=f"Choose another {kind}{inner}.",
                )
