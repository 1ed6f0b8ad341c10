"""Loggers: their options, and the node `logger` of a config, which names one or several.

One logger is {name: wandb, project: x}. Several are {wandb: {project: x}, tensorboard: {}}, as in
`callbacks`. On a command line and in a list of defaults, `logger=[wandb,tensorboard]` chooses them;
`logger.wandb.project=x` sets an option of one, and `logger.project=x` that of each logger that has
it.

A user's logger is a `lightning.pytorch.loggers.Logger` whose keyword-only parameters are its
options; a parameter `run_dir` gets the run's directory. It receives the values of each logged step,
under the names of metrics.csv, by `log_metrics(metrics, step)`.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from xformer_kit.registry import (
    Context,
    Fault,
    Faults,
    Node,
    Options,
    Registry,
    complete_mapping,
    mapping_faults,
    not_empty,
    suggestion,
)


class LoggerArguments:
    """What a run passes to the constructor of a user's logger."""

    run_dir: Path  # the run's directory


LOGGERS = Registry("logger", caller_arguments=LoggerArguments)
NOT_IN_PROJECT = re.compile(r"[/\\#?%:]")
MLFLOW_URI = re.compile(
    r"(https?|(sqlite|mysql|postgresql|mssql)(\+\w+)?)://\S+|databricks(://\S+)?"
)
# Key of the node while Hydra composes it: {name: null} of the loggers that were chosen. Hydra
# merges the nodes of several choices, so that `name` is the last of them.
CHOSEN = "chosen"


def option_names(loggers: Iterable[str]) -> set[str]:
    """Returns the options of these loggers; an unknown one has none."""
    return {option for name in loggers if name in LOGGERS for option in LOGGERS.options(name)}


@LOGGERS.register("wandb", similar=("wb",))
@dataclass(frozen=True)
class WandB:
    """Weights & Biases, offline if there is no login."""

    project: str = "xformer_kit"  # project of the run
    entity: str | None = None  # user or team; null is the login's own
    group: str | None = None  # runs that belong together; of a study null is its name
    job_type: str | None = None  # kind of run within its group; of a study null is the variant
    # words to filter by; of a study null is design, seed and the claim's paper
    tags: list[str] | None = None
    run_name: str | None = None  # null is NAME/TIME, the run's directory
    x_axis: Literal["step", "tokens"] = "step"  # x axis of the charts
    # upload checkpoints, config and tokenizer as an artifact: true at the end, all at each save
    log_model: bool | Literal["all"] = False

    @classmethod
    def check(cls, options: Options, context: Context) -> Faults:
        yield from not_empty(options, run_name="Try null.", project="Try xformer_kit.")
        if (allowed := NOT_IN_PROJECT.sub("-", options.project)) != options.project:
            rule = "must have none of the characters / \\ # ? % :, which W&B refuses"
            yield Fault("project", rule, got=options.project, fix=f"Try {allowed}.")


@LOGGERS.register("csv")
@dataclass(frozen=True)
class CSV:
    """Only metrics.csv and speed.csv, which every run writes."""


@LOGGERS.register("tensorboard", similar=("tb",))
@dataclass(frozen=True)
class TensorBoard:
    """TensorBoard event files in the run's directory (needs `pip install tensorboard`)."""


@LOGGERS.register("mlflow")
@dataclass(frozen=True)
class MLflow:
    """An MLflow server, or the file mlflow.db in the current directory (needs `pip install
    mlflow`).
    """

    # server or database; null is $MLFLOW_TRACKING_URI, or else sqlite:///mlflow.db
    tracking_uri: str | None = None
    experiment: str = "xformer_kit"  # experiment of the run
    run_name: str | None = None  # null is NAME/TIME, the run's directory

    @classmethod
    def check(cls, options: Options, context: Context) -> Faults:
        uri = options.tracking_uri
        if uri is not None and not MLFLOW_URI.fullmatch(uri):
            rule = "must be a server or a database"
            fix = "Try http://localhost:5000, or null for sqlite:///mlflow.db."
            yield Fault("tracking_uri", rule, got=uri, fix=fix)
        elif uri is not None and re.search(r"//[^/]*:[^/]*@", uri):
            rule = "must have no password, because it is saved with the config"
            yield Fault("tracking_uri", rule, fix="Set it as MLFLOW_TRACKING_URI instead.")
        yield from not_empty(options, experiment="Try xformer_kit.", run_name="Try null.")


@LOGGERS.register("none", similar=("false", "off", "no", "disabled"))
@dataclass(frozen=True)
class NoLogger:
    """Only the csv files, which every run writes."""


def as_loggers(node: Any) -> dict[str, dict[str, Any]]:
    """Returns {name: options} of the loggers of a valid node, with the defaults of options that it
    lacks.
    """
    node = LOGGERS.as_node(node)
    if "name" in node:
        node = {node["name"]: {key: value for key, value in node.items() if key != "name"}}
    return complete_mapping(LOGGERS, node)


def composed_choice(name: str) -> dict[str, Any]:
    """Returns the node that Hydra composes for `logger=NAME`."""
    return LOGGERS.defaults(name) | {CHOSEN: {name: None}}


def resolve_loggers(node: Any, set_keys: Collection[str]) -> Any:
    """Returns the composed node `logger` in the form of a saved config.

    set_keys: keys that the command line sets. If it chooses loggers, those that only a file adds
    (`logger: {tensorboard: {}}`) are left out, with the options that no chosen logger has.
    """
    if isinstance(node, str):
        return LOGGERS.defaults(node) if node in LOGGERS else {"name": node}
    if not isinstance(node, Mapping):
        return node
    chosen = list(node.get(CHOSEN) or ())
    if "name" in node and node["name"] not in chosen:
        chosen = [node["name"]]  # set as a value
    replaces = "logger" in set_keys
    set_on_line = {key.split(".")[1] for key in set_keys if key.startswith("logger.")}
    own = {
        key: options
        for key, options in node.items()
        if key in LOGGERS and (key in chosen or not replaces or key in set_on_line)
    }
    names = [
        name for name in dict.fromkeys([*chosen, *own]) if name not in own or own[name] is not None
    ]
    shared = {k: v for k, v in node.items() if k not in LOGGERS and k not in (CHOSEN, "name")}
    nodes = {name: _options(name, shared, own.get(name, {})) for name in names}
    used = option_names(names) | (option_names(LOGGERS) - set_on_line if replaces else set())
    unused = {key: value for key, value in shared.items() if key not in used}
    match list(nodes.items()):
        case [(name, {**options})]:
            return {"name": name, **options, **unused}
    return nodes | unused


def _options(name: str, shared: Node, own: Any) -> Any:
    """Returns the options of a logger: its own, those that are set for all, and defaults."""
    if not isinstance(own, Mapping) or name not in LOGGERS:
        return own
    of_all = {key: value for key, value in shared.items() if key in LOGGERS.options(name)}
    return complete_mapping(LOGGERS, {name: {**of_all, **own}})[name]


def logger_faults(node: Any, context: Context, elsewhere: Any = None) -> Faults:
    """Yields the faults of the node `logger`."""
    if not isinstance(node, Mapping) or "name" in node or not node:
        yield from LOGGERS.faults(node, "logger", context, elsewhere=elsewhere)
        return
    names = [key for key, options in node.items() if isinstance(options, Mapping) or key in LOGGERS]
    own = {name: node[name] for name in names}
    yield from mapping_faults(LOGGERS, own, "logger", context)
    for key in node.keys() - set(names):
        rule = f"none of the loggers {', '.join(names)} has such an option"
        yield Fault(f"logger.{key}", rule, fix=suggestion(key, sorted(option_names(names))))
    if "none" in node:
        yield Fault(
            "logger",
            "none is for a run without another logger",
            got=names,
            fix="Leave none out, or the others.",
        )
