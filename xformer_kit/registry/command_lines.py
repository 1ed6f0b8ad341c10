"""Command lines for messages: quoted for a shell, with the files of the user's own components of
this command line.

Files that are named only in a run's directory are never proposed: the run may be untrusted.
"""

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PLAIN = re.compile(r"[\w./+-][\w./:+-]*", re.ASCII)  # needs no quotes in Hydra's grammar


def program(directory: str | Path = "") -> str:
    """Returns the command that trains: `python train.py` in the root directory of a checkout, where
    that file is, and `xformer train` in any other `directory`.
    """
    script = CHECKOUT / "train.py"
    in_root = script.is_file() and os.path.realpath(directory) == str(CHECKOUT)
    return "python train.py" if in_root else "xformer train"


def train(*words: str, components: Iterable[str | Path] = ()) -> str:
    """Returns `xformer train components=[FILE] WORD ...`, or as `program`; the words are in Hydra's
    grammar.
    """
    files = ",".join(map(value, map(_short_path, components)))
    return " ".join(
        [
            program(),
            *map(_for_shell, [f"components=[{files}]"] if files else []),
            *map(_for_shell, words),
        ]
    )


def resume(run: str | Path, components: Iterable[str | Path] = ()) -> str:
    """Returns the command line that resumes a run."""
    return train(f"resume={value(str(run))}", components=components)


def xformer(
    command: str, run: str | Path, *words: str, components: Iterable[str | Path] = ()
) -> str:
    """Returns `xformer COMMAND RUN WORD ... --components FILE`; the words are quoted already."""
    files = [
        word for file in components for word in ("--components", shlex.quote(_short_path(file)))
    ]
    return " ".join(["xformer", command, shlex.quote(str(run)), *words, *files])


def value(path: str) -> str:
    """Returns a path in Hydra's grammar: in quotes if it would be parsed as something else."""
    return path if PLAIN.fullmatch(path) and not _is_constant(path) else quoted(path)


def quoted(text: str) -> str:
    """Returns a text in Hydra's quotes."""
    # Hydra treats backslashes as escapes only in front of a quote.
    return "'" + re.sub(r"(\\*)(')", r"\1\1\\\2", re.sub(r"(\\+)$", r"\1\1", text)) + "'"


def _is_constant(path: str) -> bool:
    """Whether Hydra parses it as a number, null or a boolean."""
    try:
        float(path)
    except ValueError:
        return path.lower() in ("null", "true", "false")
    return True


def _short_path(file: str | Path) -> str:
    """Returns the path relative to the current directory if the file is below it, else absolute;
    links are not resolved, for components.json has their names.
    """
    path, here = Path(os.path.abspath(Path(file).expanduser())), Path.cwd()
    return str(path.relative_to(here) if here in path.parents else path)


def _for_shell(word: str) -> str:
    """Quotes a word for a shell; in double quotes if it has single ones inside and nothing that
    double quotes would change.
    """
    return f'"{word}"' if "'" in word and not set('"$`!\\') & set(word) else shlex.quote(word)
