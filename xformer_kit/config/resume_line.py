"""The command line that resumes a run: `resume=RUN`, or `resume=RUN trainer.max_steps=N`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override

from xformer_kit.config.check import GROUPS
from xformer_kit.config.overrides import INSTRUCTIONS, component_files, instructions
from xformer_kit.config.saved import read_config
from xformer_kit.config.to_overrides import changed_paths, choices_of, started_from
from xformer_kit.config.trainer_schema import faults as trainer_faults
from xformer_kit.plan import KINDS, as_node
from xformer_kit.registry import ConfigError, Fault, Faults, format_value
from xformer_kit.registry.command_lines import train

LENGTH = "trainer.max_steps"
OF_MODEL = ("model", *KINDS, "extra", "tokenizer", "task", "init")
OF_LINE = ("components", "resume")  # instructions that a line with resume may have
# Node at the top of the config -> why a resumed run keeps it.
REASONS = (
    dict.fromkeys(OF_MODEL, "the weights to resume from are of the model in the run's config")
    | dict.fromkeys(("data", "seed"), "the steps so far were taken on the data of the run's config")
    | dict.fromkeys(
        ("optim", "schedule"), "the steps so far were taken with that of the run's config"
    )
    | {"hydra": "a run that is resumed stays in its directory"}
)
HYDRA = re.compile(r"[+~]*(hydra|init_from)\b")  # arguments without a meaning in a new run's line
OTHER_REASON = "a run is resumed with its own config"


def resume_faults(
    resume: object, overrides: Sequence[Override], config_dir: str | None = None
) -> Faults:
    """Yields the faults of a line that resumes a run: each argument that would change the run,
    apart from its length. An argument may repeat a value of the run, and the whole line the run's.
    A directory that is no run has its fault when it is read.
    """
    if not isinstance(resume, str) or not resume:
        yield Fault("resume", "must name a run's directory", got=f"{resume!r}")
        return
    saved = read_config(Path(resume)) if _is_run(resume) else None
    refused = list[tuple[str, Fault]]()  # (argument, its fault)
    for override in overrides:
        key = override.key_or_group
        if key == LENGTH:
            yield from _length_faults(override)
        elif key == "study":
            rule = "a run is resumed, and a study goes on with its own line"
            yield Fault("study", rule, got=str(override.input_line), fix="Leave it or resume= out.")
        elif saved is not None and key not in OF_LINE and not _is_of(override, resume, saved):
            rule = f"cannot change: {REASONS.get(key.partition('.')[0], OTHER_REASON)}"
            word = str(override.input_line)
            refused.append((word, Fault(key, rule, got=word, fix="Leave it out.")))
    if not refused or _compose_the_same(resume, overrides, config_dir):
        return
    yield from (fault for _, fault in refused[:-1])
    components = component_files(instructions([*overrides]).get("components"))
    fix = _fix(resume, [word for word, _ in refused], components)
    yield replace(refused[-1][1], fix=fix)


def _is_run(resume: object) -> bool:
    return isinstance(resume, str) and (Path(resume) / "config.yaml").is_file()


def _is_of(override: Override, run: str, config: Mapping[str, Any]) -> bool:
    """Whether an override sets a value, or chooses a component, that the run's config has, or names
    its directory.
    """
    if override.is_sweep_override() or override.is_delete():
        return False
    if override.key_or_group == "hydra.run.dir":
        return Path(str(override.value())).resolve() == Path(run).resolve()
    group, value, node = override.key_or_group, override.value(), config
    if group == "model" or group in GROUPS:
        aliases = GROUPS[group].aliases if group in GROUPS else {}
        alias = aliases.get(value) if isinstance(value, str) else None
        implied = {f"{group}.{key}": item for key, item in alias.implied.items()} if alias else {}
        found = {f"{group}.{key}": item for key, item in as_node(config.get(group)).items()}
        same = choices_of(config).get(group) == (alias.name if alias else value)
        return same and implied.items() <= found.items()
    for key in group.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return False
        node = node[key]
    numbers = {type(node), type(value)} <= {int, float}
    return (numbers or type(node) is type(value)) and node == value


def _compose_the_same(run: str, overrides: Sequence[Override], config_dir: str | None) -> bool:
    """Whether a line composes the config of the run, apart from its length."""
    kept = [o for o in overrides if o.key_or_group not in (*INSTRUCTIONS, LENGTH)]
    components = [o for o in overrides if o.key_or_group == "components"]
    words = [str(o.input_line) for o in (*components, *kept)]
    if any(map(HYDRA.match, words)):
        return False
    try:
        return not changed_paths(words, read_config(Path(run)), config_dir) - {LENGTH}
    except ConfigError:
        return False


def _fix(run: str, words: Sequence[str], components: Sequence[str]) -> str:
    """Returns the fix of arguments that a resumed run does not take: a new run, if they compose
    one; from the weights of the run, if its model stays the same.
    """
    left_out = "Leave it out." if len(words) == 1 else "Leave them out."
    if any(map(HYDRA.match, words)):
        return left_out
    of_model = any(re.split(r"[.=]", word.lstrip("+~"))[0] in OF_MODEL for word in words)
    try:
        new = started_from(run, words, takes_weights=not of_model)
        line = train(*new, components=components)
    except ConfigError:
        return left_out
    return f"{left_out[:-1]}, or start a new run{'' if of_model else ' from its weights'}: {line}."


def _length_faults(override: Override) -> Faults:
    """Yields the faults of the new trainer.max_steps of a run."""
    if override.is_sweep_override() or override.is_delete():
        yield Fault(LENGTH, "takes one number of a run that is resumed", got=override.input_line)
    elif (value := override.value()) is None:
        yield Fault(LENGTH, "must be the new number of steps", got=format_value(value))
    else:
        yield from trainer_faults({"max_steps": value})


def resumed_length(overrides: Sequence[Override]) -> int | None:
    """Returns trainer.max_steps of a line without faults; None if it is not given."""
    value: Any = {o.key_or_group: o.value() for o in overrides}.get(LENGTH)
    return value
