"""The command line that resumes a run: `resume=RUN`, or `resume=RUN trainer.max_steps=N`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override

from xformer_kit.config.line.config_files import as_list
from xformer_kit.config.line.overrides import INSTRUCTIONS, instructions
from xformer_kit.config.line.to_overrides import changed_paths, choices_of, started_from
from xformer_kit.config.options.groups import GROUPS
from xformer_kit.config.options.trainer_schema import faults as trainer_faults
from xformer_kit.config.saved.config_file import read_config
from xformer_kit.plan import KINDS, as_node
from xformer_kit.registry import REQUIRED, ConfigError, Fault, Faults, format_value
from xformer_kit.text.command_lines import train

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
    saved = read_config(Path(resume)) if (Path(resume) / "config.yaml").is_file() else None
    keys = {override.key_or_group for override in overrides}
    refused = list[tuple[str, Fault]]()  # (argument, its fault)
    for override in overrides:
        key = override.key_or_group
        if key == LENGTH:
            yield from _length_faults(override)
        elif key == "study":
            rule = "a run is resumed, and a study goes on with its own line"
            yield Fault("study", rule, got=str(override.input_line), fix="Leave it or resume= out.")
        elif saved is not None and key not in OF_LINE and not _is_of(override, keys, resume, saved):
            rule = f"cannot change: {REASONS.get(key.partition('.')[0], OTHER_REASON)}"
            word = str(override.input_line)
            refused.append((word, Fault(key, rule, got=word, fix="Leave it out.")))
    if not refused or _compose_the_same(saved or {}, overrides, config_dir):
        return
    yield from (fault for _, fault in refused[:-1])
    components = as_list(instructions([*overrides]).get("components"))
    fix = _fix(resume, [word for word, _ in refused], components)
    yield replace(refused[-1][1], fix=fix)


def _is_of(override: Override, keys: set[str], run: str, config: Mapping[str, Any]) -> bool:
    """Whether an override sets a value, or makes a choice, that the run's config has, or names its
    directory. keys: those of the line.
    """
    if override.is_sweep_override() or override.is_delete():
        return False
    if override.key_or_group == "hydra.run.dir":
        return Path(str(override.value())).resolve() == Path(run).resolve()
    value, node = override.value(), config
    if override.key_or_group in ("model", *GROUPS) and isinstance(value, str):
        return _is_choice_of(override.key_or_group, value, keys, config)
    for key in override.key_or_group.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return False
        node = node[key]
    numbers = {type(node), type(value)} <= {int, float}
    return (numbers or type(node) is type(value)) and node == value


def _is_choice_of(group: str, name: str, keys: set[str], config: Mapping[str, Any]) -> bool:
    """Whether a config has the choice of a group, with the options that the name implies: attn=mqa
    one key head, and attn=multi_head neither that nor grouped ones. keys: those of the line, which
    has its own values of these options.
    """
    if group == "model":
        return choices_of(config)["model"] == name
    registry, node = GROUPS[group], as_node(config.get(group))
    alias = registry.aliases.get(name)
    own = alias.name if alias else name
    if node.get("name") != own:
        return False
    changed = {
        key: value
        for key, value in node.items()
        if value != registry.defaults(own).get(key, value) and f"{group}.{key}" not in keys
    }
    if alias is None:
        others = (other.implied for other in registry.aliases.values() if other.name == own)
        return not any(other and _implies(other, changed) for other in others)
    implied = {key: v for key, v in alias.implied.items() if f"{group}.{key}" not in keys}
    return _implies(implied, node) and all(
        key in changed for key, value in implied.items() if value == REQUIRED
    )


def _implies(implied: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether a node has the options that another name of its component implies."""
    return all(key in node and value in (REQUIRED, node[key]) for key, value in implied.items())


def _compose_the_same(
    saved: Mapping[str, Any], overrides: Sequence[Override], config_dir: str | None
) -> bool:
    """Whether a line composes the config of a run, apart from its length."""
    kept = [o for o in overrides if o.key_or_group not in (*INSTRUCTIONS, LENGTH)]
    components = [o for o in overrides if o.key_or_group == "components"]
    words = [str(o.input_line) for o in (*components, *kept)]
    if any(map(HYDRA.match, words)):
        return False
    try:
        return not changed_paths(words, saved, config_dir) - {LENGTH}
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
