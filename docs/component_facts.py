"""Facts about components: the kernels that compute them, and the laws that they break."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_args

from xformer_kit.inspect.components import as_yaml
from xformer_kit.kernel import KERNELS, cannot_compute
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.registry import PREREQUISITES
from xformer_kit.laws.trials import (
    COMPANIONS,
    COMPONENTS,
    config_changes,
    example_value,
    option_variants,
)
from xformer_kit.plan import stacks
from xformer_kit.registry import REQUIRED, Context, Registry

# Kinds that determine, with their inner components, which kernels can compute an attention.
KINDS_OF_ATTENTION = ("attn", "mask", "position")


class KernelSupport(NamedTuple):
    """Whether a kernel can compute a component."""

    kernel: str
    supported: bool  # with at least one setting of the options
    reasons: dict[str, str]  # changed options ("" for the defaults) -> why the kernel cannot


class BrokenLaw(NamedTuple):
    """A law that a component breaks."""

    law: str
    reason: str
    options: tuple[str, ...]  # changed options with which it breaks the law; empty: always


def has_laws(kind: str) -> bool:
    """Returns whether the laws apply to components of a kind."""
    return kind in COMPONENTS


def kernels(kind: str, name: str) -> list[KernelSupport]:
    """Returns the support of each kernel, fastest first; an empty list for components that do not
    affect an attention.
    """
    if kind.split(".")[0] not in KINDS_OF_ATTENTION:
        return []
    contexts = list(_contexts(kind, name))
    found = []
    for kernel in sorted((k for k in KERNELS if k != "auto"), key=lambda k: -KERNELS[k].speed):
        checked = [(options, cannot_compute(kernel, context)) for options, context in contexts]
        reasons = {options: reason for options, reason in checked if reason}
        found.append(KernelSupport(kernel, len(reasons) < len(contexts), reasons))
    return found


def _contexts(kind: str, name: str) -> Iterator[tuple[str, Context]]:
    """Yields (changed options, context of its attention) of the component with its defaults and
    with each variant of its options, in the first composition that is not refused.
    """
    nodes = option_variants(kind, name)
    for node in nodes:
        for companions in COMPANIONS:
            changes: dict[str, Any] = {**companions, **config_changes(kind, node)}
            config = tiny_config(**changes)
            if not faults(config):
                plan = stacks(config)[-1]
                attns = [sub for sub in plan.blocks[0].sublayers if sub.kind == "attn"]
                yield difference(node, nodes[0]), attns[0].context
                break


def difference(node: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    """Returns the options of a node that differ from the base node, as overrides."""
    return ", ".join(
        f"{key}={_option_text(value)}" for key, value in node.items() if value != base[key]
    )


def _option_text(value: Any) -> str:
    return (
        value["name"] if isinstance(value, Mapping) and value.keys() == {"name"} else as_yaml(value)
    )


def broken_laws(registry: Registry, kind: str, name: str) -> list[BrokenLaw]:
    """Returns the laws that a component breaks, in the order of the laws."""
    if not has_laws(kind):
        return []
    nodes = list(_nodes(registry, kind, name))
    found: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        for law, reason in registry.broken_laws(node).items():
            found.setdefault((law, str(reason)), []).append(difference(node, nodes[0]))
    laws = [
        BrokenLaw(law, reason, () if "" in options else tuple(options))
        for (law, reason), options in found.items()
    ]
    return sorted(laws, key=lambda broken: list(LAWS).index(broken.law))


def _nodes(registry: Registry, kind: str, name: str) -> Iterator[Mapping[str, Any]]:
    """Yields nodes of the component: defaults, each variant, and a number in place of each null."""
    found = option_variants(kind, name)
    yield from found
    for key, option in registry.options(name).items():
        if option.default is None:
            values = [example_value(t) for t in get_args(option.type)]
            yield from (
                {**found[0], key: value}
                for value in values
                if value is not None and value != REQUIRED
            )


def implied(law: str) -> list[str]:
    """Returns the laws that a component which breaks this law breaks too."""
    return [other for other, above in PREREQUISITES.items() if law in above]
