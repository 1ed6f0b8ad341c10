"""Command lines for messages: quoted for a shell, with the files of the user's own components of
this command line.

Files that are named only in a run's directory are never proposed: the run may be untrusted.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from xformer_kit.text.printable import is_number
from xformer_kit.text.user_path import user_path

CHECKOUT = Path(__file__).resolve().parents[2]
PLAIN = re.compile(r"[\w./+-][\w./:+-]*", re.ASCII)  # needs no quotes in Hydra's grammar


def program(directory: str | Path = "") -> str:
    """Returns the command that trains: `python train.py` in the root directory of a checkout, where
    that file is, and `xformer train` in any other `directory`.
    """
    in_checkout = os.path.realpath(directory) == str(CHECKOUT)
    return (
        "python train.py" if in_checkout and (CHECKOUT / "train.py").is_file() else "xformer train"
    )


def train(*words: str, components: Iterable[str | Path] = (), directory: str | Path = "") -> str:
    """Returns `xformer train components=[FILE] WORD ...`, or as `program`, to be typed in a
    directory; the words are in Hydra's grammar.
    """
    files = ",".join(map(value, map(_short_path, components)))
    typed = [*([f"components=[{files}]"] if files else []), *words]
    return " ".join([program(directory), *map(for_shell, typed)])


def resume(run: str | Path, components: Iterable[str | Path] = ()) -> str:
    """Returns the command line that resumes a run."""
    return train(f"resume={value(str(run))}", components=components)


def xformer(command: str, *words: str | Path, components: Iterable[str | Path] = ()) -> str:
    """Returns `xformer COMMAND WORD ... --components FILE`; see `_xformer`."""
    files = [word for file in components for word in ("--components", _short_path(file))]
    return " ".join([_xformer(), *map(for_shell, (command, *map(str, words), *files))])


def value(text: str) -> str:
    """Returns a text in Hydra's grammar: in quotes if it would be parsed as something else, and
    with \\${ for ${, which would be an interpolation.
    """
    is_constant = is_number(text) or text.lower() in ("null", "true", "false")
    return text if PLAIN.fullmatch(text) and not is_constant else quoted(text)


def quoted(text: str) -> str:
    """Returns a text in Hydra's quotes; see `value`."""
    # Backslashes are escapes only in front of ${, of a quote and of the last quote.
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    return "'" + re.sub(r"(\\*)(')", r"\1\1\\\2", re.sub(r"(\\+)$", r"\1\1", text)) + "'"


def unescaped(text: str) -> str:
    """Returns a text of Hydra's parser with ${ for \\${, as OmegaConf resolves it; interpolations
    stay.
    """
    return re.sub(r"(?<!\\)((?:\\\\)*)\\\$\{", lambda found: found[1][::2] + "${", text)


def override_text(item: Any) -> str:
    """Returns a value in Hydra's override grammar; see `value`."""
    if isinstance(item, Mapping):
        return "{" + ",".join(f"{key}:{override_text(v)}" for key, v in item.items()) + "}"
    if isinstance(item, (list, tuple)):
        return "[" + ",".join(map(override_text, item)) + "]"
    if item is None or isinstance(item, bool):
        return {None: "null", True: "true", False: "false"}[item]
    return value(item) if isinstance(item, str) else str(item)


def _short_path(file: str | Path) -> str:
    """Returns the path relative to the current directory if the file is below it, else absolute;
    links are not resolved, for components.json has their names.
    """
    path, here = Path(os.path.abspath(user_path(file))), Path.cwd()
    return str(path.relative_to(here) if here in path.parents else path)


def for_shell(word: str) -> str:
    """Quotes a word for a shell; in double quotes if it has single ones inside and nothing that
    double quotes would change.
    """
    return f'"{word}"' if "'" in word and not set('"$`!\\') & set(word) else shlex.quote(word)


def _xformer() -> str:
    """Returns the program of the commands that do not train: `xformer`, also of a virtual
    environment that is not active, or its module in a checkout that is not installed.
    """
    installed = shutil.which("xformer") or Path(sys.executable).with_name("xformer").is_file()
    return "xformer" if installed else "python -m tasks.cli"
