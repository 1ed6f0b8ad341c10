"""Checks the laws for a component in several compositions, and for all components of a file."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from xformer_kit.attention import ATTENTIONS
from xformer_kit.config import GROUPS, MAPPING_GROUPS, NESTED_GROUPS, import_components
from xformer_kit.extra import EXTRAS
from xformer_kit.files.user_errors import lines_of
from xformer_kit.laws.building import sampled_comparisons
from xformer_kit.laws.kinds import KIND_LAWS, check_laws_of_kind
from xformer_kit.laws.registry import LAWS, SLOW
from xformer_kit.laws.tiny_composition import LawBroken, faults, overrides, tiny_config, tiny_node
from xformer_kit.laws.variants import DISTANT
from xformer_kit.mask import Mask
from xformer_kit.plan import KINDS
from xformer_kit.registry import (
    REQUIRED,
    ConfigError,
    Node,
    config_error,
    nested,
    suggestion,
)
from xformer_kit.text.user_path import user_path

# Other choices that a component is composed with. Together they cover the kinds of masks and the
# places at which a position enters.
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
        "mask": DISTANT,
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

REGISTERS = "registers"  # the law of a result for a component that cannot be registered
COMPONENTS = KINDS | NESTED_GROUPS | {"extra": EXTRAS}


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
    file, registries = user_path(path).resolve(), GROUPS | NESTED_GROUPS | MAPPING_GROUPS
    components = [
        (group, name)
        for group, registry in registries.items()
        for name, component in registry.loaded.items()
        if Path(inspect.getfile(component)).resolve() == file
    ]
    for component in components:
        with ExitStack() as stack:  # a component is not composed with others of its file
            for group, registry in registries.items():
                others = [one[1] for one in components if one[0] == group and one != component]
                stack.enter_context(registry.leaving_out(others))
            results += check_component(*component)
    if not results:
        raise config_error(
            "components",
            f"{path} registers no component",
            fix="Decorate one, e.g. @ATTENTIONS.register('mine').",
        )
    return results


def check_component(kind: str, name: str) -> list[Result]:
    """Checks all laws for one component in several compositions, slow laws in one per variant; of
    one that is not part of a model, the laws of its kind. Returns one result per law, broken if any
    composition breaks it.
    """
    component = f"{kind} {name}"
    if kind in KIND_LAWS:
        return [Result(component, *outcome) for outcome in check_laws_of_kind(kind, name)]
    if kind not in COMPONENTS:
        kinds = ", ".join([*KINDS, "extra", *KIND_LAWS])
        sentence = f"there are no laws for this kind; there are for {kinds}."
        return [Result(component, "all", "skipped", sentence)]
    try:
        num_variants = len(option_variants(kind, name))
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
        sentence = f"no law is called '{unknown[0]}'. {suggestion(unknown[0], LAWS)}"
        return [Result(component, "breaks", "broken", sentence)]
    checked: dict[str, list[Result]] = {law: [] for law in LAWS}
    for i, config in enumerate(configs):  # all laws of one composition share its models
        with sampled_comparisons() if i else nullcontext():
            for law, results in checked.items():
                broken = results and results[-1].verdict == "broken"
                if not broken and (i < num_variants or law not in SLOW):
                    results.append(_check(component, law, config))
    return [_merged(results) for results in checked.values()]


def _raised(error: Exception) -> str:
    return f"raised {type(error).__name__}: {' '.join(str(error).split()).rstrip('.')}"


def _check(component: str, law: str, config: Node) -> Result:
    """Returns the result of a law for one config."""
    try:
        reason = LAWS[law](config)
    except LawBroken as error:
        return Result(component, law, "broken", str(error))
    except Exception as error:
        kind, name = component.split()
        lines = lines_of(error, COMPONENTS[kind][name])
        line = f", in line {lines[-1]}" if lines else ""
        sentence = f"{_raised(error)}{line}. Seen with: {' '.join(overrides(config))}"
        return Result(component, law, "broken", sentence)
    return Result(component, law, "ok" if reason is None else "skipped", reason or "")


def _merged(results: list[Result]) -> Result:
    """Returns one result for the results of a law, of which only the last may be broken."""
    *_, last = results
    if last.verdict == "broken":
        return last
    skipped = [result.sentence for result in results if result.verdict == "skipped"]
    reasons = "; ".join(dict.fromkeys(skipped))
    kept = len(results) - len(skipped)
    if not kept:
        return last._replace(sentence=f"{reasons}.")
    left_out = f"; {len(skipped)} left out: {reasons}" if skipped else ""
    sentence = f"kept in {kept} composition{'s' * (kept > 1)}{left_out}."
    return last._replace(verdict="ok", sentence=sentence)


def compositions(kind: str, name: str) -> Iterator[dict[str, Any]]:
    """Yields configs in which each variant of the component's options is composed with companions:
    each variant and each set of companions at least once.
    """
    nodes, needed = option_variants(kind, name), _needed_changes(kind, name)
    for i, companions in enumerate(COMPANIONS * (1 + (len(nodes) - 1) // len(COMPANIONS))):
        changes = {**companions, **needed, **config_changes(kind, nodes[i % len(nodes)])}
        yield tiny_config(**changes)


def _needed_changes(kind: str, name: str) -> dict[str, Any]:
    """Returns, for a kernel that computes no scores, the attention that it supports and that can be
    composed with most companions.
    """
    if kind != "kernel" or "scores" in KINDS[kind][name].computes:
        return {}
    computed = KINDS[kind][name].computes
    supported = [attn for attn, component in ATTENTIONS.items() if component.computes in computed]

    def count_accepted(attn: str) -> int:
        configs = (tiny_config(**{**companions, "attn": attn}) for companions in COMPANIONS)
        return sum(not faults(config) for config in configs)

    return {"attn": max(supported, key=count_accepted)}


def option_variants(kind: str, name: str) -> list[dict[str, Any]]:
    """Returns the node of a component with its defaults, and with each other value of each option
    that has few values, if the config accepts it.
    """
    registry = COMPONENTS[kind]
    options = registry.options(name)
    base = tiny_node(kind, name) if kind in KINDS else registry.defaults(name)
    base |= {
        key: example_value(options[key].type) for key, value in base.items() if value == REQUIRED
    }
    nodes = [base]
    for key, option in options.items():
        choices = option_choices(option.type)
        nodes += [{**base, key: choice} for choice in choices if choice != base[key]]
    accepted = (node for node in nodes if not faults(tiny_config(**config_changes(kind, node))))
    return list(accepted) or [base]


def option_choices(annotation: Any) -> list[Any]:
    """Returns the values of an option that has few: booleans, literals, nested components."""
    if annotation is bool:
        return [True, False]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) is UnionType:
        return [choice for a in get_args(annotation) for choice in option_choices(a)]
    inner = nested(annotation) if get_origin(annotation) is Callable else None
    return [{"name": name} for name in inner or ()]


def config_changes(kind: str, node: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `tiny_config` for a component; a nested component is an option of
    the first component that has such an option.
    """
    outer, _, option = kind.partition(".")
    if kind == "extra":
        return {kind: {node["name"]: {k: v for k, v in node.items() if k != "name"}}}
    if not option:
        return {kind: node}
    first = next(name for name in KINDS[outer] if option in KINDS[outer].inner(name))
    return {outer: {"name": first, option: node}}


def example_value(annotation: Any) -> Any:
    """Returns a value for a required option."""
    if annotation is Mask:
        return {"name": "causal"}
    if get_origin(annotation) in (tuple, list):
        item = example_value(get_args(annotation)[0])
        return [item, {"name": "sliding_window", "window": 3}] if isinstance(item, dict) else [item]
    if get_origin(annotation) is Literal:
        return get_args(annotation)[0]
    return {int: 2, float: 0.5, bool: True, str: "a"}.get(annotation, REQUIRED)
