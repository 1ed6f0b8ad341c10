"""Checks the laws for a component in several compositions, and for all components of a file."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from xformer_kit.attention import ATTENTIONS
from xformer_kit.config import GROUPS, INNER, MAPPING_GROUPS, import_components
from xformer_kit.extra import EXTRAS
from xformer_kit.laws.building import among_many
from xformer_kit.laws.composition import LawBroken, faults, overrides, sized, tiny
from xformer_kit.laws.registry import LAWS, SLOW
from xformer_kit.mask import Mask
from xformer_kit.plan import KINDS
from xformer_kit.registry import REQUIRED, ConfigError, Node, config_error, nested
from xformer_kit.registry import suggestion as known_choices

EMPTY_ROWS = {
    "name": "all_of",
    "of": [{"name": "causal"}, {"name": "not", "of": {"name": "sliding_window", "window": 2}}],
}
# What a component is composed with. Together they cover the kinds of masks and the places at which
# a position enters.
COMPANIONS: tuple[Node, ...] = (
    {"mask": "causal", "position": "rotary"},
    {
        "mask": "sliding_window",
        "position": "alibi",
        "norm": "layer",
        "placement": "post",
        "ffn": "mlp",
    },
    {
        "mask": "causal",
        "position": "learned",
        "norm": "layer",
        "placement": "sandwich",
        "tie_embeddings": False,
    },
    {"mask": "full", "position": "none", "decoder": {"layout": [["attn", "ffn"]]}},
    {
        "mask": EMPTY_ROWS,
        "position": "sinusoidal",
        "ffn": "mlp",
        "decoder": {"layout": ["ffn", "attn", "ffn"]},
    },
    {"model": "encoder", "position": "learned", "norm": "layer", "placement": "post", "ffn": "mlp"},
    {
        "model": "encoder_decoder",
        "mask": "prefix",
        "position": "alibi",
        "encoder": {"position": {"name": "none"}},
        "share_embeddings": False,
    },
)


REGISTERS = "registers"  # the row of a component that cannot be registered
COMPONENTS = KINDS | INNER | {"extra": EXTRAS}


class Result(NamedTuple):
    """The result of one law for one component."""

    component: str  # "attn mine"
    law: str
    verdict: Literal["ok", "broken", "skipped"]
    sentence: str


def check_file(path: str) -> list[Result]:
    """Checks all laws for every component that a Python file registers. Raises ConfigError if it
    registers none.
    """
    refused: list[tuple[str, ConfigError]] = []
    import_components([path], GROUPS.values(), refused)
    results = [Result(component, REGISTERS, "broken", str(error)) for component, error in refused]
    file, registries = Path(path).expanduser().resolve(), GROUPS | INNER | MAPPING_GROUPS
    components = [
        (group, name)
        for group, registry in registries.items()
        for name, component in registry.loaded.items()
        if Path(inspect.getfile(component)).resolve() == file
    ]
    for group, name in components:
        with (
            ExitStack() as stack
        ):  # the laws compose a component with all others, but not of its file
            for other, registry in registries.items():
                others = [
                    n for kind, n in components if kind == other and (kind, n) != (group, name)
                ]
                stack.enter_context(registry.leaving_out(others))
            results += check_component(group, name)
    if not results:
        raise config_error(
            "components",
            f"{path} registers no component",
            fix="Decorate one, e.g. @ATTENTIONS.register('mine').",
        )
    return results


def check_component(kind: str, name: str) -> list[Result]:
    """Checks all laws for one component in several compositions, slow laws in one per variant.
    Returns one result per law, broken if any composition breaks it.
    """
    component = f"{kind} {name}"
    if kind not in COMPONENTS:
        sentence = f"laws are about the components of a model: {', '.join(KINDS)}."
        return [Result(component, "all", "skipped", sentence)]
    try:
        few = len(faces(kind, name))
        tried = [(config, faults(config)) for config in compositions(kind, name)]
        unknown = [law for law in COMPONENTS[kind].broken_laws(name) if law not in LAWS]
    except Exception as error:  # of its own `check`, `cannot`, `traits` or `breaks`
        return [Result(component, "composes", "broken", f"{_raised(error)}.")]
    configs = [config for config, refused in tried if not refused]
    if not configs:
        reasons = " ".join(dict.fromkeys(str(fault) for _, refused in tried for fault in refused))
        sentence = f"every composition tried is refused: {reasons}"
        return [Result(component, "composes", "broken", sentence)]
    if unknown:
        sentence = f"no law is called '{unknown[0]}'. {known_choices(unknown[0], LAWS)}"
        return [Result(component, "breaks", "broken", sentence)]
    verdicts = [_Verdict(component, law) for law in LAWS]
    for i, config in enumerate(configs):  # all laws of one composition share its models
        with among_many() if i else nullcontext():
            for verdict in verdicts:
                if i < few or verdict.law not in SLOW:
                    verdict.hear(config)
    return [verdict.result() for verdict in verdicts]


def _raised(error: Exception) -> str:
    return f"raised {type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}"


class _Verdict:
    """Collects the results of a law for a component over compositions; stops at the first that
    breaks it.
    """

    def __init__(self, component: str, law: str):
        self.component = component
        self.law = law
        self.broken = ""
        self.kept = 0
        self.reasons = list[str]()

    def hear(self, config: dict[str, Any]) -> None:
        if self.broken:
            return
        try:
            reason = LAWS[self.law](config)
        except LawBroken as broken:
            self.broken = str(broken)
        except Exception as error:
            self.broken = f"{_raised(error)}. Seen with: {' '.join(overrides(config))}"
        else:
            self.kept += reason is None
            self.reasons += [] if reason is None else [reason]

    def result(self) -> Result:
        if self.broken:
            return Result(self.component, self.law, "broken", self.broken)
        why = "; ".join(dict.fromkeys(self.reasons))
        if not self.kept:
            return Result(self.component, self.law, "skipped", f"{why}.")
        rest = f"; {len(self.reasons)} left out: {why}" if self.reasons else ""
        kept = f"kept in {self.kept} composition{'s' * (self.kept > 1)}{rest}."
        return Result(self.component, self.law, "ok", kept)


def compositions(kind: str, name: str) -> Iterator[dict[str, Any]]:
    """The component with each of its faces in turn among its companions."""
    nodes, needed = faces(kind, name), _needed(kind, name)
    for i, companions in enumerate(COMPANIONS * (1 + (len(nodes) - 1) // len(COMPANIONS))):
        changes: dict[str, Any] = {**companions, **needed, **chosen(kind, nodes[i % len(nodes)])}
        yield tiny(**changes)


def _needed(kind: str, name: str) -> dict[str, Any]:
    """Returns, for a kernel that computes no scores, the attention that it supports and that can be
    composed with most companions.
    """
    if kind != "kernel" or "scores" in KINDS[kind][name].computes:
        return {}
    able = [
        a for a, component in ATTENTIONS.items() if component.computes in KINDS[kind][name].computes
    ]

    def fits(attn: str) -> int:
        return sum(not faults(tiny(**{**companions, "attn": attn})) for companions in COMPANIONS)

    return {"attn": max(able, key=fits)}


def faces(kind: str, name: str) -> list[dict[str, Any]]:
    """Returns the component with its defaults, and with each other value of each option that has
    few values.
    """
    registry = COMPONENTS[kind]
    base = sized(kind, name) if kind in KINDS else registry.defaults(name)
    base |= {
        key: example(registry.options(name)[key].type)
        for key, value in base.items()
        if value == REQUIRED
    }
    found = [base]
    for key, option in registry.options(name).items():
        found += [
            {**base, key: choice} for choice in suggestion(option.type) if choice != base[key]
        ]
    return [face for face in found if not faults(tiny(**chosen(kind, face)))] or [base]


def suggestion(annotation: Any) -> list[Any]:
    """Returns the values of an option that has few: booleans, literals, nested components."""
    if annotation is bool:
        return [True, False]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) is UnionType:
        return [choice for a in get_args(annotation) for choice in suggestion(a)]
    inner = nested(annotation) if get_origin(annotation) is Callable else None
    return [] if inner is None else [{"name": name} for name in inner]


def chosen(kind: str, node: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `tiny` for a component; a nested component is an option of the first
    component that takes it.
    """
    outer, _, option = kind.partition(".")
    if kind == "extra":
        return {kind: {node["name"]: {k: v for k, v in node.items() if k != "name"}}}
    if not option:
        return {kind: node}
    first = next(name for name in KINDS[outer] if option in KINDS[outer].inner(name))
    return {outer: {"name": first, option: node}}


def example(annotation: Any) -> Any:
    """Returns a value for a required option."""
    if annotation is Mask:
        return {"name": "causal"}
    if get_origin(annotation) in (tuple, list):
        item = example(get_args(annotation)[0])
        return [item, {"name": "sliding_window", "window": 3}] if isinstance(item, dict) else [item]
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    return {int: 2, float: 0.5, bool: True, str: "a"}.get(annotation, REQUIRED)
