"""What is wrong with a config? Every fault at once, each a sentence that starts with its config
path.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from xformer_kit.config import sharing, stacks
from xformer_kit.config.callbacks import CALLBACKS
from xformer_kit.config.data import faults_with_settings, unused
from xformer_kit.config.plan_faults import plan_faults
from xformer_kit.config.settings import LOGGERS, SETTINGS, missing_settings
from xformer_kit.config.trainable import further, suits, vocabulary
from xformer_kit.config.trainer_schema import OPTIONS as TRAINER
from xformer_kit.config.trainer_schema import faults as trainer_faults
from xformer_kit.config.unknown_values import with_unknown
from xformer_kit.data.corpus import CORPORA
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.extra import EXTRAS
from xformer_kit.model.init import INITS
from xformer_kit.objective import OBJECTIVES
from xformer_kit.optim import OPTIMIZERS
from xformer_kit.optim.schedules import SCHEDULES
from xformer_kit.plan import KINDS, STACKS, ModelPlan, as_node, model_plan, new_plan
from xformer_kit.registry import (
    ConfigError,
    Context,
    Fault,
    Faults,
    Node,
    Registry,
    format_value,
    independent_check,
    mapping_faults,
    unknown_option,
)

GROUPS: dict[str, Registry] = KINDS | {
    "task": OBJECTIVES,
    "data": CORPORA,
    "tokenizer": TOKENIZERS,
    "init": INITS,
    "optim": OPTIMIZERS,
    "schedule": SCHEDULES,
    "logger": LOGGERS,
}
# Components of components: a config names them inside those.
INNER: dict[str, Registry] = {
    inner.group: inner
    for registry in KINDS.values()
    for name in registry.loaded
    for inner in registry.inner(name).values()
    if inner.group not in GROUPS
}
# Kinds of which a config names any number.
MAPPING_GROUPS: dict[str, Registry] = {"extra": EXTRAS, "callbacks": CALLBACKS}
TOP = (
    "name",
    *SETTINGS.options("run"),
    *GROUPS,
    "model",
    "trainer",
    "ema",
    "checkpoints",
    "callbacks",
    "extra",
)


def registry_at(path: str) -> Registry | None:
    """The registry of the component at a config path: norm, attn.score, model.decoder.cross,
    model.encoder.variants.local.mask; None where no component stands.
    """
    first, *inside = path.split(".")
    if first == "model" and len(inside) > 1 and inside[0] in STACKS:
        inside = inside[3:] if inside[1] == "variants" else inside[1:]
        if len(inside) == 1:
            return KINDS.get("attn" if inside == ["cross"] else inside[0])
    inner = ".".join(path.replace(".cross.", ".attn.").split(".")[-2:])
    return GROUPS.get(path) or INNER.get(inner)


def check(
    config: Node, data: bool = True, task: bool = True, composition: bool = True
) -> list[Fault]:
    """All faults of a resolved config; empty where it can run.

    `data`: whether the corpus must be at hand; `task`: whether the model must suit its task;
    `composition`: whether its components are those that were meant, else only options are checked.
    """
    if not composition:
        return list(dict.fromkeys(_shallow(config, data)))
    return checked(config, data, task)[1]


def checked(
    config: Node, data: bool = True, task: bool = True
) -> tuple[ModelPlan | None, list[Fault]]:
    """The plan of a config's model and all faults of the config; no plan if its nodes are at
    fault themselves.
    """
    found = list(dict.fromkeys(_shallow(config, data)))
    if found:
        # A key that there is not may have been meant for any node.
        known = with_unknown(config, found) if config.keys() <= set(TOP) else None
        of_model = () if known is None else _of_known(known, task)
        return None, list(dict.fromkeys([*found, *of_model]))
    found = list(_of_run(config))
    if wrong := list(_unsuited(config, task)):
        return None, [*found, *wrong]
    plan = model_plan(config)
    found += [*_of_settings(config, task), *plan_faults(config, plan, task)]
    return plan, list(dict.fromkeys(found))


@independent_check
def _of_known(config: Node, task: bool) -> Faults:
    """Faults of a composition that do not depend on the values that are unknown."""
    wrong = list(_unsuited(config, task))
    yield from wrong or plan_faults(config, new_plan(config), task)


def _unsuited(config: Node, task: bool) -> Faults:
    """Faults from which others of the composition would follow."""
    yield from suits(config) if task else ()
    yield from sharing.too_many(config)


def ensure(config: Node, data: bool = True) -> ModelPlan:
    """The plan of a valid config. Raises ConfigError with all faults of another."""
    plan, found = checked(config, data)
    if found or plan is None:
        raise ConfigError(found)
    return plan


def _shallow(config: Node, data: bool) -> Faults:
    """Unknown words, wrong types and ranges, node by node."""
    elsewhere = partial(places, config)
    for key in config:
        if key not in TOP:
            yield unknown_option("", "settings", "run", key, sorted(TOP), elsewhere())
    for key in ("model", "trainer", "ema", "checkpoints", *GROUPS):
        if key not in config:
            yield Fault(key, "is missing; a config needs it", fix=f"It has: {', '.join(config)}.")
    yield from _top(config)
    yield from missing_settings(config)
    model = config.get("model")
    context = _context(config)
    for group, registry in GROUPS.items():
        if group in config and group not in ("data", "tokenizer"):
            yield from registry.faults(config[group], group, context, elsewhere=elsewhere)
    if "tokenizer" in config:
        yield from faults_with_settings("tokenizer", TOKENIZERS, config["tokenizer"], context)
    if data:
        yield from faults_with_settings("data", CORPORA, config.get("data"), context)
    yield from _settings("model", model, "model", context, also=STACKS, elsewhere=elsewhere)
    for key in ("ema", "checkpoints"):
        yield from _settings(key, config.get(key, {}), key, context)
    yield from trainer_faults(config.get("trainer", {}))
    hint = "One of your own needs its file: components=[my_callbacks.py]."
    yield from mapping_faults(CALLBACKS, config.get("callbacks", {}), "callbacks", context, hint)
    yield from mapping_faults(EXTRAS, config.get("extra", {}), "extra", context)
    if isinstance(model, Mapping):
        if not any(stack in model for stack in STACKS):
            yield Fault("model", "has no stack", fix="Add one: model.decoder={}.")
        for stack in STACKS:
            if stack in model:
                of_layout = (*KINDS, "layout")  # of which `stacks` knows more
                if model[stack] is not None:
                    there = partial(stacks.options, config, f"model.{stack}")
                    yield from _settings(
                        "stack", model[stack], f"model.{stack}", context, of_layout, there
                    )
                yield from stacks.faults(config, model[stack], f"model.{stack}", context)


def places(config: Node) -> dict[str, list[str]]:
    """Option -> the paths where this config has it: the options of its components, and the keys
    next to them. A group -> itself, and the name of an extra -> how one adds it.
    """
    nodes = {
        group: registry.options(name)
        for group, registry in GROUPS.items()
        if (name := as_node(config.get(group)).get("name")) in registry
    }
    found: dict[str, list[str]] = {}
    for node in ("model", "data", "tokenizer", "ema", "checkpoints"):
        nodes[node] = nodes.get(node, {}) | SETTINGS.options(node)
    for path, options in (nodes | {"trainer": TRAINER}).items():
        for option in options:
            found.setdefault(option, []).append(f"{path}.{option}")
    for name in (*EXTRAS, *EXTRAS.also_called):
        found.setdefault(name, []).append(f"extra.{EXTRAS.find_name(name)}={{}}")
    return {group: [group] for group in GROUPS} | found


def _top(config: Node) -> Faults:
    plain = {"name": "run"} | {key: config[key] for key in SETTINGS.options("run") if key in config}
    yield from SETTINGS.faults(plain, "", Context())
    name = config.get("name")
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        yield Fault("name", "must be the name of a directory", got=format_value(name))


def _context(config: Node) -> Context:
    model = config.get("model")
    dim = model.get("dim") if isinstance(model, Mapping) else None
    names = {
        kind: as_node(config.get(kind)).get("name")
        for kind in KINDS
        if isinstance(config.get(kind), (str, Mapping))
    }
    known = (
        type(dim) is int and dim > 0
    )  # else its own fault says it, and no component is measured against it
    return Context(dim=dim if known else 0, names=names)


def _settings(
    name: str,
    node: Any,
    path: str,
    context: Context,
    also: tuple[str, ...] = (),
    elsewhere: Any = None,
) -> Faults:
    if not isinstance(node, Mapping):
        yield Fault(path, "must be a mapping of options", got=format_value(node))
        return
    kept = {key: value for key, value in node.items() if key not in also}
    yield from SETTINGS.faults(
        {"name": name} | kept, path, context, other_keys=also, elsewhere=elsewhere
    )


def _of_run(config: Node) -> Faults:
    """Settings of a run that exclude each other."""
    decay, count = config["ema"].get("decay"), config["checkpoints"].get("average", 1)
    if decay is not None and count > 1:
        yield Fault(
            "ema.decay",
            "cannot be set with checkpoints.average",
            got=f"{decay} and {count}",
            fix="Set it to null, or average=1.",
        )
    if count > 1 and not config["trainer"].get("enable_checkpointing", True):
        yield Fault(
            "checkpoints.average",
            "is of checkpoints, and trainer.enable_checkpointing=false writes none",
            got=count,
            fix="Set it to 1, or trainer.enable_checkpointing=true.",
        )
    longest, seq_len = config["model"].get("max_len"), config["data"].get("seq_len")
    if longest is not None and seq_len is not None and longest < seq_len:
        yield Fault(
            "model.max_len",
            "must be at least data.seq_len",
            got=f"{longest} and {seq_len}",
            fix="null is data.seq_len.",
        )


def _of_settings(config: Node, task: bool) -> Faults:
    """Settings of the model and its data that have no effect, or do not fit the tokenizer."""
    model = config["model"]
    if not model["share_embeddings"] and not all(stack in model for stack in STACKS):
        yield Fault(
            "model.share_embeddings",
            "is about a source and a target, and the model has one stack",
            fix="Leave it true.",
        )
    yield from sharing.unused(model)
    if task:
        yield from further(config)
        yield from unused(config)
    size, (needed, bound) = model.get("vocab_size"), vocabulary(config)
    if size is not None and size < needed:
        yield Fault(
            "model.vocab_size",
            f"must hold the tokenizer's {needed} tokens{bound}",
            got=size,
            fix="null is the tokenizer's.",
        )
