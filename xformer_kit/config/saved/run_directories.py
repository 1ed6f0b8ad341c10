"""Directories of runs on the disk: those of a sweep, and the newest one for a message."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from xformer_kit.text.command_lines import program
from xformer_kit.text.user_path import is_override, user_path

CONFIG = "config.yaml"  # a directory that has it is a run's
LATEST = "latest"  # names the newest run
OUTPUTS = "outputs"  # under the current directory, where runs are saved by default
LEVELS = ("*", "*/*", "*/*/*")  # below it: a run, one of a task, one of a task's sweep


def run_directories(names: Iterable[str | Path]) -> list[Path]:
    """Returns the directories of runs that a command line names, each once. A directory that is no
    run and has runs directly below it, such as a sweep's, stands for these.
    """
    paths = [user_path(name) for name in names]
    return list(dict.fromkeys(run for path in paths for run in runs_below(path) or [path]))


def runs_below(path: Path) -> list[Path]:
    """Returns the runs directly below a directory, by number or name; none below a run."""
    if (path / CONFIG).is_file():
        return []
    runs = [file.parent for file in path.glob(f"*/{CONFIG}") if _is_visible(file, path)]
    return sorted(runs, key=lambda run: (not run.name.isdecimal(), len(run.name), run.name))


def named_run(word: str) -> str:
    """Returns the directory of a run that a user names `latest`, for the newest run, or by its path
    below ./outputs; any other word unchanged.
    """
    below = Path(OUTPUTS, word)
    if is_override(word) or not word or os.path.exists(user_path(word)):
        return word
    if word == LATEST and (newest := newest_run()):
        return str(newest)
    return str(below) if os.path.exists(below) else word


def saved_runs(outputs: Path = Path(OUTPUTS)) -> list[Path]:
    """Returns the runs below ./outputs or another directory, the newest last. Only the levels at
    which runs are saved are searched.
    """
    files = [file for level in LEVELS for file in outputs.glob(f"{level}/{CONFIG}")]
    runs = [file.parent for file in files if _is_visible(file, outputs)]
    return sorted(runs, key=lambda run: _age_key(run)[1])


def newest_run() -> Path | None:
    """Returns the newest run below ./outputs that has a checkpoint, else the newest run, else
    None.
    """
    return max(saved_runs(), key=_age_key, default=None)


def example_of_run(
    path: str | Path | None = None,
    sentence: str = "Name a run's directory such as {}.",
    as_text: Callable[[str], str] = str,
) -> str:
    """Returns the sentence with a run in it, for a message: the first run directly below `path`, if
    it has any, else the newest one below ./outputs; if there is none, how one begins.
    """
    below = [] if path is None else runs_below(user_path(path))
    if run := next(iter(below), None) or newest_run():
        return sentence.format(as_text(str(run)))
    return f"There is no run below {OUTPUTS}: {program()} begins one."


def _is_visible(file: Path, directory: Path) -> bool:
    """Whether no folder between a directory and a file in it has a name that starts with a dot."""
    return not any(part.startswith(".") for part in file.relative_to(directory).parts)


def _age_key(run: Path) -> tuple[bool, float]:
    try:
        has_checkpoint = any((run / "checkpoints").glob("*.ckpt"))
        return has_checkpoint, (run / CONFIG).stat().st_mtime
    except OSError:  # deleted meanwhile
        return False, 0.0
