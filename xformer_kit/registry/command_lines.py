"""Command lines that messages propose: quoted for a shell, with the files of own components that
were typed on this command line.

Files that only a run's own directory names are never proposed: the run may come from elsewhere.
"""

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

PLAIN = re.compile(r"[\w./+-][\w./:+-]*", re.ASCII)  # what Hydra reads as it stands


def train(*words: str, components: Iterable[str | Path] = ()) -> str:
    """`python train.py components=[FILE] WORD ...`; the words are as Hydra reads them."""
    files = ",".join(map(value, map(_near, components)))
    return " ".join(
        [
            "python train.py",
            *map(_for_shell, [f"components=[{files}]"] if files else []),
            *map(_for_shell, words),
        ]
    )


def resume(run: str | Path, components: Iterable[str | Path] = ()) -> str:
    """The line that goes on with a run."""
    return train(f"resume={value(str(run))}", components=components)


def xformer(
    command: str, run: str | Path, *words: str, components: Iterable[str | Path] = ()
) -> str:
    """`xformer COMMAND RUN WORD ... --components FILE`; the words are quoted already."""
    files = [word for file in components for word in ("--components", shlex.quote(_near(file)))]
    return " ".join(["xformer", command, shlex.quote(str(run)), *words, *files])


def value(path: str) -> str:
    """A path as Hydra's grammar reads it: in quotes if it would be read as something else."""
    return path if PLAIN.fullmatch(path) and not _is_constant(path) else quoted(path)


def quoted(text: str) -> str:
    """A text in Hydra's quotes."""
    # Backslashes mean something to Hydra in front of a quote only.
    return "'" + re.sub(r"(\\*)(')", r"\1\1\\\2", re.sub(r"(\\+)$", r"\1\1", text)) + "'"


def _is_constant(path: str) -> bool:
    """Whether Hydra reads a number, null or a boolean there."""
    try:
        float(path)
    except ValueError:
        return path.lower() in ("null", "true", "false")
    return True


def _near(file: str | Path) -> str:
    """Relative to the current directory if the file is below it, else absolute; links keep their
    names, which components.json has.
    """
    whole, here = Path(os.path.abspath(Path(file).expanduser())), Path.cwd()
    return str(whole.relative_to(here) if here in whole.parents else whole)


def _for_shell(word: str) -> str:
    """For a shell; in double quotes if there are single ones inside and nothing that double quotes
    would change.
    """
    return f'"{word}"' if "'" in word and not set('"$`!\\') & set(word) else shlex.quote(word)
