"""Checks of a whole config: all its faults at once, each with its config path."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from xformer_kit.config.faults.data_faults import data_faults, faults_with_settings
from xformer_kit.config.faults.freezing_faults import freezing_faults
from xformer_kit.config.faults.lora_faults import lora_faults
from xformer_kit.config.faults.optim_faults import (
    average_faults,
    optim_faults,
    sharded_faults,
    width_faults,
)
from xformer_kit.config.faults.plan_faults import plan_faults
from xformer_kit.config.faults.sharing_faults import unique_layers_faults, unused_sharing_faults
from xformer_kit.config.faults.stack_faults import component_option_paths, stack_faults
from xformer_kit.config.faults.task_faults import (
    extra_prediction_faults,
    least_vocabulary_size,
    metric_faults,
    task_faults,
)
from xformer_kit.config.options.callbacks import monitored_faults
from xformer_kit.config.options.groups import GROUPS, MAPPING_GROUPS, OWN_FILE
from xformer_kit.config.options.logger_options import logger_faults
from xformer_kit.config.options.settings import SETTINGS, missing_settings
from xformer_kit.config.options.trainer_schema import OPTIONS as TRAINER
from xformer_kit.config.options.trainer_schema import faults as trainer_faults
from xformer_kit.data.corpus import CORPORA
from xformer_kit.data.run_length import step_tokens
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.extra import EXTRAS
from xformer_kit.plan import KINDS, STACKS, ModelPlan, as_node, model_plan
from xformer_kit.registry import (
    ConfigError,
    Context,
    Fault,
    Faults,
    Node,
    format_value,
    mapping_faults,
    other_option,
    unknown_option,
)

TOP_KEYS = (
    "name",
    *SETTINGS.options("run"),
    *GROUPS,
    "model",
    "trainer",
    "ema",
    "checkpoints",
    "init_from",
    "lora",
    *MAPPING_GROUPS,
)
# Nodes that decide whether a model can be composed: if one of them has a fault, the composition is
# checked when it is valid. An unknown key at the top may have been meant for any node.
COMPOSITION = {*KINDS, "task", "model", "data", "extra", "trainer"}


def check(
    config: Node, data: bool = True, task: bool = True, composition: bool = True
) -> list[Fault]:
    """Returns all faults of a resolved config; an empty list if it can run.

    data: whether the corpus is checked, and so must be available; task: whether the task must be
    able to train the model; composition: False checks only options, for a config in which defaults
    are in the place of unknown choices.
    """
    if not composition:
        return list(dict.fromkeys(_node_faults(config, data)))
    return plan_and_faults(config, data, task)[1]


def plan_and_faults(
    config: Node, data: bool = True, task: bool = True
) -> tuple[ModelPlan | None, list[Fault]]:
    """Returns (plan of the model, all faults of the config); None for the plan if the faults
    prevent it.
    """
    faults = list(dict.fromkeys(_node_faults(config, data)))
    nodes = {fault.path.partition(".")[0] for fault in faults}
    if not (nodes.isdisjoint(COMPOSITION) and nodes <= config.keys() & set(TOP_KEYS)):
        return None, faults
    are_valid = not faults
    faults += _run_settings_faults(config) if are_valid else ()
    if preventing := list(_whole_stack_faults(config, task)):
        return None, [*faults, *preventing]
    plan = model_plan(config)
    faults += _model_settings_faults(config, data, task) if are_valid else ()
    faults += plan_faults(config, plan, task)
    if not faults:
        faults += [*lora_faults(config), *freezing_faults(config)]
        faults += [*optim_faults(config), *width_faults(config, task)]
        faults += sharded_faults(config) if task else ()
    return plan, list(dict.fromkeys(faults))


def _whole_stack_faults(config: Node, task: bool) -> Faults:
    """Yields the faults of the choice of stacks and of their depths, from which other faults of the
    composition would follow.
    """
    yield from task_faults(config) if task else ()
    yield from unique_layers_faults(config)


def checked_plan(config: Node, data: bool = True) -> ModelPlan:
    """Returns the plan of a valid config's model. Raises ConfigError with all faults of an invalid
    one.
    """
    plan, faults = plan_and_faults(config, data)
    if faults or plan is None:
        raise ConfigError(faults)
    return plan


def _node_faults(config: Node, data: bool) -> Faults:
    """Yields the faults of each node by itself: unknown names and keys, types and ranges."""
    elsewhere = partial(option_paths, config)
    for key in config:
        if key not in TOP_KEYS:
            yield from _unknown_key_faults(key, config[key], elsewhere())
    for key in ("model", "trainer", "ema", "checkpoints", *GROUPS):
        if key not in config:
            yield Fault(key, "is missing; a config needs it", fix=f"It has: {', '.join(config)}.")
    yield from _top_faults(config)
    yield from missing_settings(config)
    context = _component_context(config)
    for group, registry in GROUPS.items():
        if group in config and group not in ("data", "tokenizer", "logger"):
            yield from registry.faults(config[group], group, context, elsewhere=elsewhere)
    if "logger" in config:
        yield from logger_faults(config["logger"], context, elsewhere)
    if "tokenizer" in config:
        yield from faults_with_settings("tokenizer", TOKENIZERS, config["tokenizer"], context)
    if data or isinstance(config.get("data"), Mapping):
        yield from faults_with_settings("data", CORPORA, config.get("data"), context, data)
    elif "data" in config:
        yield Fault("data", "must be a mapping of options", format_value(config["data"]))
    model = config.get("model")
    yield from _settings_faults("model", model, "model", context, STACKS, elsewhere)
    for key in ("ema", "checkpoints", "init_from", "lora"):
        yield from _settings_faults(key, config.get(key, {}), key, context)
    yield from trainer_faults(config.get("trainer", {}))
    for group, registry in MAPPING_GROUPS.items():
        hint = OWN_FILE.format(group) if group != "extra" else ""
        yield from mapping_faults(registry, config.get(group, {}), group, context, hint)
    if isinstance(model, Mapping):
        yield from _stacks_faults(config, context)


def _unknown_key_faults(key: str, value: Any, elsewhere: Mapping[str, list[str]]) -> Faults:
    """Yields the fault of an unknown key at the top. A node whose keys are all known elsewhere,
    such as train.max_steps, has the fault of each.
    """
    known = partial(unknown_option, "", "settings", "run", elsewhere=elsewhere)
    node = {} if not isinstance(value, Mapping) or other_option(key, value) else value
    of_node = {option: other_option(f"{key}.{option}", item) for option, item in node.items()}
    if node and all(of_node[k] or k in elsewhere or other_option(k) for k in node):
        for option, item in node.items():
            fault = of_node[option] or known(option, sorted(TOP_KEYS), value=item)
            yield replace(fault, path=f"{key}.{option}")
    else:
        yield known(key, sorted(TOP_KEYS), value=value)


def _stacks_faults(config: Node, context: Context) -> Faults:
    """Yields the faults of the settings and differences of each stack."""
    stacks = {name: config["model"][name] for name in STACKS if name in config["model"]}
    if not stacks:
        yield Fault("model", "has no stack", fix="Add one: model.decoder={}.")
    for name, stack in stacks.items():
        path = f"model.{name}"
        if stack is not None:
            other_keys = (*KINDS, "layout")  # checked by `stack_faults`
            elsewhere = partial(component_option_paths, config, path)
            yield from _settings_faults("stack", stack, path, context, other_keys, elsewhere)
        yield from stack_faults(config, stack, path, context)


def option_paths(config: Node) -> dict[str, list[str]]:
    """Returns {option: its paths in this config}: options of the chosen components, settings next
    to them, groups, and names of extras with the override that adds them.
    """
    nodes = {
        group: registry.options(name)
        for group, registry in GROUPS.items()
        if (name := as_node(config.get(group)).get("name")) in registry
    }
    paths: dict[str, list[str]] = {}
    for node in ("model", "data", "tokenizer", "ema", "checkpoints", "init_from"):
        nodes[node] = nodes.get(node, {}) | SETTINGS.options(node)
    for path, options in (nodes | {"trainer": TRAINER}).items():
        for option in options:
            paths.setdefault(option, []).append(f"{path}.{option}")
    for name in (*EXTRAS, *EXTRAS.also_called):
        paths.setdefault(name, []).append(f"extra.{EXTRAS.find_name(name)}={{}}")
    return {group: [group] for group in GROUPS} | paths


def _top_faults(config: Node) -> Faults:
    """Yields the faults of values at the top of the config."""
    node = {"name": "run"} | {key: config[key] for key in SETTINGS.options("run") if key in config}
    yield from SETTINGS.faults(node, "", Context())
    name = config.get("name")
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        yield Fault("name", "must be the name of a directory", got=format_value(name))


def _component_context(config: Node) -> Context:
    """Returns the context for checks of single components: names of components and model.dim; 0 if
    that is invalid, and then no component is checked against it.
    """
    model, nodes = config.get("model"), {kind: config.get(kind) for kind in KINDS}
    dim = model.get("dim") if isinstance(model, Mapping) else None
    names = {
        kind: as_node(node).get("name")
        for kind, node in nodes.items()
        if isinstance(node, (str, Mapping))
    }
    return Context(dim=dim if type(dim) is int and dim > 0 else 0, names=names)


# node of settings -> the setting that is proposed for a value that is no mapping, as in lora=true
_FIRST_SETTING = {"checkpoints": "keep_best=3", "ema": "decay=0.999", "lora": "rank=8"}


def _settings_faults(
    name: str,
    node: Any,
    path: str,
    context: Context,
    other_keys: tuple[str, ...] = (),
    elsewhere: Any = None,
) -> Faults:
    """Yields the faults of a node of settings; other_keys: valid keys that are checked
    elsewhere.
    """
    if not isinstance(node, Mapping):
        option = _FIRST_SETTING.get(path, "")
        fix = f"Try {path}.{option}." if option else ""
        yield Fault(path, "must be a mapping of options", got=format_value(node), fix=fix)
        return
    if "name" in node:
        fix = f"Try model={node['name']}." if path == "model" else "Leave it out."
        yield Fault(f"{path}.name", "the config has no such key", node["name"], fix)
    settings = {key: value for key, value in node.items() if key not in (*other_keys, "name")}
    yield from SETTINGS.faults({"name": name} | settings, path, context, other_keys, elsewhere)


def _run_settings_faults(config: Node) -> Faults:
    """Yields the faults of settings of a run that exclude each other."""
    decay, count = config["ema"].get("decay"), config["checkpoints"].get("average", 1)
    if decay is not None and count > 1:
        yield Fault(
            "ema.decay",
            "cannot be set with checkpoints.average",
            got=f"{decay} and {count}",
            fix="Set it to null, or average=1.",
        )
    if not config["trainer"].get("enable_checkpointing", True):
        for key, option in SETTINGS.options("checkpoints").items():
            if (value := config["checkpoints"].get(key, option.default)) != option.default:
                yield Fault(
                    f"checkpoints.{key}",
                    "is of checkpoints, and trainer.enable_checkpointing=false writes none",
                    got=value,
                    fix=(
                        f"Set it to {format_value(option.default)}, or"
                        " trainer.enable_checkpointing=true."
                    ),
                )
    yield from average_faults(config)
    yield from monitored_faults(config)
    yield from _length_faults(config)
    max_len, seq_len = config["model"].get("max_len"), config["data"].get("seq_len")
    if max_len is not None and seq_len is not None and max_len < seq_len:
        yield Fault(
            "model.max_len",
            "must be at least data.seq_len",
            got=f"{max_len} and {seq_len}",
            fix="null is data.seq_len.",
        )


def _length_faults(config: Node) -> Faults:
    """Yields the fault of a run of fewer tokens than a step has."""
    tokens = config["trainer"].get("max_tokens")
    if tokens is not None and tokens < (least := step_tokens(config["data"])):
        named = (
            "batch_tokens" if config["data"].get("batch_tokens") else "batch_size * data.seq_len"
        )
        yield Fault(
            "trainer.max_tokens",
            f"must be at least the {least:,} tokens of one step, data.{named}",
            got=f"{tokens:,}",
            fix="Give the tokens of the whole run, such as 1e9.",
        )


def _model_settings_faults(config: Node, data: bool, task: bool) -> Faults:
    """Yields the faults of settings of the model and its data that have no effect, or do not fit
    the tokenizer, if `data` is checked. task: whether the task is checked, too.
    """
    model = config["model"]
    if not model["share_embeddings"] and not all(stack in model for stack in STACKS):
        yield Fault(
            "model.share_embeddings",
            "is about a source and a target, and the model has one stack",
            fix="Leave it true.",
        )
    yield from unused_sharing_faults(model)
    if task:
        yield from extra_prediction_faults(config)
        yield from metric_faults(config)
        yield from data_faults(config)
    size, (needed, bound) = model.get("vocab_size"), least_vocabulary_size(config)
    if data and size is not None and size < needed:
        yield Fault(
            "model.vocab_size",
            f"must hold the tokenizer's {needed} tokens{bound}",
            got=size,
            fix="null is the tokenizer's.",
        )
