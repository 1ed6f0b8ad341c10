"""The command line that resumes a run: `resume=RUN`, or `resume=RUN trainer.max_steps=N`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override

from xformer_kit.config.line.to_overrides import changed_paths, to_overrides
from xformer_kit.config.options.trainer_schema import faults as trainer_faults
from xformer_kit.config.saved.config_file import read_config
from xformer_kit.plan import KINDS
from xformer_kit.registry import ConfigError, Fault, Faults, Node, format_value
from xformer_kit.text.command_lines import value

LENGTH, OTHER_LENGTHS = "trainer.max_steps", ("trainer.max_tokens", "trainer.max_epochs")
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
    others = []
    for override in overrides:
        key = override.key_or_group
        if key == LENGTH:
            yield from _length_faults(override)
        elif key == "study":
            rule = "a run is resumed, and a study goes on with its own line"
            yield Fault("study", rule, got=str(override.input_line), fix="Leave it or resume= out.")
        elif key not in OF_LINE and not _is_own_directory(override, resume):
            others.append(override)
    if others and (Path(resume) / "config.yaml").is_file():
        saved = read_config(resume)
        if _changes(others, saved, config_dir):
            changing = [each for each in others if _changes([each], saved, config_dir)]
            yield from (_other_fault(override, resume) for override in changing or others)


def _is_own_directory(override: Override, run: str) -> bool:
    is_directory = override.key_or_group == "hydra.run.dir"
    return is_directory and Path(str(override.value())).resolve() == Path(run).resolve()


def _changes(overrides: Sequence[Override], saved: Node, config_dir: str | None) -> bool:
    """Whether overrides would change the config of a run if they were added to its command line."""
    if any(override.is_hydra_override() for override in overrides):
        return True
    words = [str(override.input_line) for override in overrides]
    try:
        return bool(changed_paths([*to_overrides(saved), *words], saved, config_dir))
    except ConfigError:
        return True


def _other_fault(override: Override, run: str) -> Fault:
    """Returns the fault of an argument that would change a run."""
    node, word = override.key_or_group.partition(".")[0], str(override.input_line)
    fix = "Leave it out, or start a new run"
    if override.key_or_group in OTHER_LENGTHS:
        rule = "cannot change: the new length of a run that is resumed is a number of steps"
        return Fault(override.key_or_group, rule, word, f"Give {LENGTH}=N.")
    if node not in (*OF_MODEL, "hydra"):
        fix += f" from its weights, with init_from={value(run)}"
    rule = f"cannot change: {REASONS.get(node, OTHER_REASON)}"
    return Fault(override.key_or_group, rule, word, f"{fix}.")


def _length_faults(override: Override) -> Faults:
    """Yields the faults of the new trainer.max_steps of a run."""
    if override.is_sweep_override() or override.is_delete():
        yield Fault(LENGTH, "takes one number of a run that is resumed", got=override.input_line)
    elif (length := override.value()) is None:
        yield Fault(LENGTH, "must be the new number of steps", got=format_value(length))
    else:
        yield from trainer_faults({"max_steps": length})


def resumed_length(overrides: Sequence[Override]) -> int | None:
    """Returns trainer.max_steps of a line without faults; None if it is not given."""
    length: Any = {o.key_or_group: o.value() for o in overrides}.get(LENGTH)
    return length
