"""Checks of components with each other: those of a plan that cannot be composed."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from xformer_kit.extra import EXTRAS
from xformer_kit.kernel import cannot_compute
from xformer_kit.objective import OBJECTIVES
from xformer_kit.placement import PLACEMENTS
from xformer_kit.plan import (
    KINDS,
    OUTPUT_LAWS,
    WITH_SUBLAYER,
    BlockPlan,
    ModelPlan,
    Node,
    StackPlan,
    SublayerPlan,
    as_node,
    layout_path,
    provenance_of,
)
from xformer_kit.registry import Context, Fault, Faults


class ComponentAt(NamedTuple):
    """The place of a component in a model: names of its stack, variant, sublayer and kind."""

    stack: str
    variant: str
    sublayer: str
    kind: str


IN_BLOCK = (
    "wrap",
    "projected",
    "values",
)  # hooks of extras in a block, which have their own caches
Refusals = Mapping[ComponentAt, list[Fault]]  # what each component yields in `cannot`


def refusals(stack: StackPlan, block: BlockPlan) -> dict[ComponentAt, list[Fault]]:
    """Returns what each component of a block yields in `cannot`, with paths inside its node."""
    return {
        ComponentAt(stack.name, block.variant, sub.name, kind): list(_refusals(sub, kind))
        for sub in block.sublayers
        for kind in _kinds(sub)
    }


def _kinds(sub: SublayerPlan) -> list[str]:
    """Returns the kinds of components that a sublayer has; position too if it is added to the
    embeddings.
    """
    kinds = {*KINDS} - {"ffn"} if sub.kind == "attn" else {"ffn", "norm", "placement"}
    if "embed" in sub.context.position.enters:
        kinds.add("position")
    return [kind for kind in KINDS if kind in kinds]


def _refusals(sub: SublayerPlan, kind: str) -> Faults:
    """Yields why a component of a sublayer cannot be composed with the others."""
    name = sub.context.names[kind]
    if kind != "kernel":
        yield from KINDS[kind].cannot(sub.context.options[kind], sub.context)
    elif name != "auto" and (reason := cannot_compute(name, sub.context)):
        yield Fault("", f"'{name}' cannot: {reason}", fix="Use kernel=auto or kernel=reference.")


def path_of(block: BlockPlan, sub: SublayerPlan, kind: str) -> str:
    """Returns the config path that set a sublayer's component of a kind."""
    if sub.context.options[kind] == block.nodes[kind]:
        return provenance_of(kind, block)
    return layout_path(block, sub) + ("" if kind == sub.kind else f".{kind}")


def scopes(at: ComponentAt, block: BlockPlan, sub: SublayerPlan) -> tuple[str, str, str]:
    """Returns the config paths that set a component of all sublayers, of those of the stack, and of
    those of the block; with cross attentions apart.
    """
    place = at.kind
    if sub.cross and (at.kind == sub.kind or at.kind in WITH_SUBLAYER[sub.kind]):
        place = "cross" if at.kind == sub.kind else f"cross.{at.kind}"
    return at.kind, f"model.{at.stack}.{place}", f"{block.path}.{place}"


def refused_by_all(model: ModelPlan, refused: Refusals) -> dict[str, set[Fault]]:
    """Returns {path of `scopes`: the faults that all sublayers have for which a component that the
    whole model shares would be set there}; cross attentions, whose mask and position are others,
    do not count as sublayers of the whole model.
    """
    found: dict[str, set[Fault]] = {}
    for stack in model.stacks:
        for block in {block.variant: block for block in stack.blocks}.values():
            for sub in block.sublayers:
                for kind in _kinds(sub):
                    at = ComponentAt(stack.name, block.variant, sub.name, kind)
                    if path_of(block, sub, kind) == kind:
                        for path in scopes(at, block, sub)[sub.cross :]:
                            found[path] = found.get(path, {*refused[at]}) & {*refused[at]}
    return found


def block_faults(
    config: Node,
    model: ModelPlan,
    stack: StackPlan,
    block: BlockPlan,
    task: bool,
    refused: Refusals,
) -> Faults:
    """Yields the faults of a block's components that cannot be composed; refused: the `refusals` of
    all blocks. In a model of two stacks, a fault that only some of the sublayers have which share a
    component is at the path of these sublayers.
    """
    by_all = refused_by_all(model, refused) if len(model.stacks) > 1 else {}
    yield from _placement_faults(stack.base, block)
    for group in block.groups:
        if any(sub.norm != group[0].norm for sub in group):
            names = ", ".join(sub.name for sub in group)
            yield Fault(
                f"{block.path}.layout",
                f"{names} run in parallel, and the norms of a parallel group are of one kind",
                fix="Give the norm to all of them, or to none.",
            )
    for sub in block.sublayers:
        yield from _embedding_faults(stack.base, block, sub)
        valid = []  # kinds without a fault
        for kind in _kinds(sub):
            at = ComponentAt(stack.name, block.variant, sub.name, kind)
            faults = [fault for fault in refused[at] if not fault.unused]
            for fault in faults:
                path = path_of(block, sub, kind)
                if path == kind and by_all:
                    wide = scopes(at, block, sub)
                    path = next((one for one in wide if fault in by_all.get(one, ())), wide[-1])
                yield fault.at(path)
            valid += [] if faults else [kind]
        if task:
            yield from _task_faults(config, block, sub, valid, stack is model.output)
        if config["data"].get("documents"):
            yield from _law_faults(("documents",), "data.documents=true", block, sub, valid)


def embedding_faults(block: BlockPlan) -> Faults:
    """Yields the faults of a position that is added to the embeddings, in a base block that no
    layer uses.
    """
    sub = block.sublayers[0]
    if "embed" in sub.context.position.enters:
        path = path_of(block, sub, "position")
        yield from (fault.at(path) for fault in _refusals(sub, "position"))


def extra_faults(config: Node, model: ModelPlan, task: bool) -> Faults:
    """Yields the faults of extras that cannot be used in the model, or break laws that the run
    needs; task: whether its task does.
    """
    attentions = [
        sub
        for plan in model.stacks
        for block in plan.blocks
        for sub in block.sublayers
        if sub.kind == "attn" and not sub.cross
    ]
    unchanged = [sub for sub in attentions if not sub.context.attn.values]
    in_front = [name for name in model.extras if EXTRAS[name].overrides("front")]
    context = Context(dim=model.output.dim, stacks=model.stacks)
    for name, options in model.extras.items():
        path = f"extra.{name}"
        if in_front and "vocab_size" in EXTRAS.model_arguments(name):
            rule = (
                f"reads the ids of tokens, and those that extra '{in_front[0]}' puts in front of a"
                " text have none"
            )
            yield Fault(path, rule, fix="Leave one of them out.")
        elif EXTRAS[name].overrides("values") and not attentions:
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
            refused = EXTRAS.cannot({"name": name, **options}, context)
            yield from (fault.at(path) for fault in refused)
    yield from _choosing_faults(model)
    yield from _extra_law_faults(config, model, task)


def _choosing_faults(model: ModelPlan) -> Faults:
    """Yields the faults of an extra whose layers run on some of the tokens."""
    for name in (name for name in model.extras if EXTRAS[name].overrides("choose")):
        for other in model.extras:
            if any(map(EXTRAS[other].overrides, IN_BLOCK)):
                rule = (
                    f"its layers run on some of the tokens, and extra '{other}' reads all of them"
                )
                yield Fault(f"extra.{name}", rule, fix="Leave one of them out.")
        placement = model.output.placement
        if isinstance(PLACEMENTS[placement["name"]].streams(placement), str):
            rule = (
                "its layers run on some of the tokens, and placement"
                f" '{placement['name']}' keeps what every layer adds to all of them"
            )
            yield Fault(f"extra.{name}", rule, fix="Choose placement=pre, or leave it out.")


def _extra_law_faults(config: Node, model: ModelPlan, task: bool) -> Faults:
    """Yields the fault of each law that an extra breaks and the run needs."""
    needed = {"documents": "data.documents=true"} if config["data"].get("documents") else {}
    if task:
        name = as_node(config["task"])["name"]
        needed |= dict.fromkeys(OBJECTIVES[name].laws, f"task={name}")
    for extra, options in model.extras.items():
        for law, broken in EXTRAS.broken_laws({"name": extra, **options}).items():
            if law in needed:
                rule = f"breaks the law of {law} ({broken}), which {needed[law]} needs"
                yield Fault(f"extra.{extra}", rule, fix="Leave it out.")


def _placement_faults(base: BlockPlan, block: BlockPlan) -> Faults:
    """Yields the fault of a block whose residual stream has another form than that of its
    stack.
    """
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
    """Returns the form of a placement's residual stream as a phrase."""
    streams = PLACEMENTS[node["name"]].streams(node)
    if isinstance(streams, str):
        return f"all earlier {streams}"
    return f"{streams} stream{'s' * (streams > 1)}"


def _embedding_faults(base: BlockPlan, block: BlockPlan, sub: SublayerPlan) -> Faults:
    """Yields the fault of a position that is added to the embeddings, if it is not the stack's."""
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


def _task_faults(
    config: Node, block: BlockPlan, sub: SublayerPlan, kinds: Iterable[str], output: bool
) -> Faults:
    """Yields the faults of components that the task cannot train; output: whether the stack's
    output goes to the head.
    """
    node = as_node(config["task"])
    if sub.kind == "attn":
        path = path_of(block, sub, "mask")
        yield from (fault.at(path) for fault in OBJECTIVES.cannot(node, sub.context))
    needed = OBJECTIVES[node["name"]].laws
    laws = [law for law in needed if output or law not in OUTPUT_LAWS]
    yield from _law_faults(laws, f"task={node['name']}", block, sub, kinds)


def _law_faults(
    laws: Iterable[str], needed_by: str, block: BlockPlan, sub: SublayerPlan, kinds: Iterable[str]
) -> Faults:
    """Yields the fault of each component of these kinds that breaks a law that the run needs: only
    the first such law, because another component fixes all of them.
    """
    for kind in kinds:
        broken = KINDS[kind].broken_laws(sub.context.options[kind])
        reported = set[tuple[str, str]]()  # (kind, name) of components
        for law in laws:
            if law in broken and broken[law][1:3] not in reported:
                reported.add(broken[law][1:3])
                option = broken[law].option
                yield Fault(
                    path_of(block, sub, kind),
                    f"'{sub.context.names[kind]}' breaks the law of {law} ({broken[law]}), which"
                    f" {needed_by} needs",
                    fix=f"Choose another {kind}{option and '.' + option}.",
                )
