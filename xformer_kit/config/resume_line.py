"""The command line that resumes a run: `resume=RUN`, or `resume=RUN trainer.max_steps=N`."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override

from xformer_kit.config.overrides import INSTRUCTIONS
from xformer_kit.config.to_overrides import started_from
from xformer_kit.config.trainer_schema import faults as trainer_faults
from xformer_kit.plan import KINDS
from xformer_kit.registry import ConfigError, Fault, Faults, format_value
from xformer_kit.registry.command_lines import train

LENGTH = "trainer.max_steps"
OF_MODEL = ("model", *KINDS, "extra", "tokenizer", "task", "init")
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


def resume_faults(resume: object, overrides: Sequence[Override]) -> Faults:
    """Yields the faults of a line that resumes a run: each argument that would change the run,
    apart from its length.
    """
    if not isinstance(resume, str) or not resume:
        yield Fault("resume", "must name a run's directory", got=f"{resume!r}")
    refused = list[tuple[str, Fault]]()  # (argument, its fault)
    for override in overrides:
        key = override.key_or_group
        if key == LENGTH:
            yield from _length_faults(override)
        elif key not in INSTRUCTIONS:
            rule = f"cannot change: {REASONS.get(key.partition('.')[0], OTHER_REASON)}"
            word = str(override.input_line)
            refused.append((word, Fault(key, rule, got=word, fix="Leave it out.")))
    yield from (fault for _, fault in refused[:-1])
    for _, fault in refused[-1:]:
        yield replace(fault, fix=_fix(str(resume), [word for word, _ in refused]))


def _fix(run: str, words: Sequence[str]) -> str:
    """Returns the fix of arguments that a resumed run does not take: a new run from its weights, if
    they compose one.
    """
    left_out = "Leave it out." if len(words) == 1 else "Leave them out."
    if not (Path(run) / "config.yaml").is_file() or any(map(HYDRA.match, words)):
        return left_out
    try:
        line = train(*started_from(run, words))
    except ConfigError:
        return left_out
    of_model = any(re.split(r"[.=]", word.lstrip("+~"))[0] in OF_MODEL for word in words)
    weights = "those of its weights that fit" if of_model else "its weights"
    return f"{left_out[:-1]}, or start a new run from {weights}: {line}."


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
