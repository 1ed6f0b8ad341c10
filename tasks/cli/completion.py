"""Tab completion of `xformer ...` and `python train.py ...` in bash and zsh, by Hydra's flag
--shell-completion.

A query takes seconds if it imports all components, therefore their names are kept in the cache
directory, in a file for this state of the code.
"""

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xformer_kit.registry import config_error
from xformer_kit.text.command_lines import CHECKOUT, program
from xformer_kit.text.user_path import user_path

if TYPE_CHECKING:
    from xformer_kit.config.line.completion_table import CompletionTable

FLAGS = ("-sc", "--shell-completion")
# Shell -> how it removes the completion of these programs.
SHELLS = {
    "bash": "complete -r {}; unset -f _xformer_complete",
    "zsh": "compdef -d {}; unfunction _xformer_complete",
}


def main(words: list[str], commands: Mapping[str, Any]) -> int:
    """Runs `-sc install=SHELL`, `uninstall=SHELL` or `query=SHELL`: prints what the shell
    evaluates, or the words that can complete the line XFORMER_LINE. commands: those of xformer.
    Raises ConfigError.
    """
    action, _, shell = " ".join(word for word in words if word not in FLAGS).partition("=")
    if action not in ("install", "uninstall", "query") or shell not in SHELLS:
        raise config_error(
            "--shell-completion",
            f"takes install or uninstall of {' or '.join(SHELLS)}",
            got=f"{action}{'=' * bool(shell)}{shell}",
            fix=f'Try eval "$({program()} -sc install=bash)".',
        )
    names = "python python3 xformer" if Path(sys.argv[0]).suffix == ".py" else "xformer"
    if action == "install":
        script = Path(__file__).with_name(f"completion.{shell}").read_text(encoding="utf-8")
        print(script.rstrip().removesuffix("xformer") + names)
    elif action == "uninstall":
        print(SHELLS[shell].format(names))
    else:
        print(*completions(os.environ.get("XFORMER_LINE", ""), commands), sep="\n")
    return 0


def completions(line: str, commands: Mapping[str, Any]) -> list[str]:
    """Returns the words that can replace the last word of an unfinished line; a complete one ends
    with a blank.
    """
    if len(split := _split(line)) < 2:  # typed by hand, without a line
        return []
    *words, word = split
    before = re.match(r"python\S* (?:\S*train\.py|-m xformer_kit)|\S+", " ".join(words) or line)
    skipped = len(before.group().split()) if before else 1
    command = "train"
    if not words[0].startswith("python") or "train.py" not in "".join(words[:2]):
        if len(words) == skipped:
            return [f"{name} " for name in commands if name.startswith(word)]
        command, skipped = words[skipped], skipped + 1
    if command not in commands:
        return []
    options = commands[command].OPTIONS
    if command != "train" and word.startswith("-"):
        names = (re.split(r"[?*+! ]", key)[0] for key in options)
        return [f"{name} " for name in names if name.startswith(word) and name[0] == "-"]
    if not any("OVERRIDE" in key for key in options):
        return []
    rest = words[skipped:]
    if command == "plot" and not rest:
        return [f"{kind} " for kind in commands["plot"].KINDS if kind.startswith(word)]
    table = read_table(_component_files(rest))
    for group, name in _configs(rest):
        table["choices"][group] = [*table["choices"].get(group, []), name]
    return sorted(set(overrides(word, rest, table)))


def _split(line: str) -> list[str]:
    """Returns the words of a line that may end inside quotes; the last is "" after a blank."""
    for end in ("", "'", '"'):
        with suppress(ValueError):
            return shlex.split(line + end) + [""] * line.endswith(" ")
    return line.split(" ")


def overrides(word: str, words: list[str], table: "CompletionTable") -> Iterator[str]:
    """Yields the overrides that start with `word`, up to the next dot. words: those before it."""
    given = [each.partition("=") for each in words]
    chosen = table["chosen"] | {
        group: value for group, _, value in given if value in table["options"].get(group, {})
    }
    values = dict(table["settings"])
    for group, of_name in table["options"].items():
        for name, found in of_name.items():
            if chosen.get(group) == name:
                values |= {f"{group}.{option}": each for option, each in found.items()}
            elif group not in chosen:  # extra and callbacks: {name: options}
                values[f"{group}.{name}"] = ["{}"]
                values |= {f"{group}.{name}.{option}": each for option, each in found.items()}
    key, equals, value = word.partition("=")
    if equals:
        *swept, last = re.split(r",", value)
        start = "".join(f"{each}," for each in swept)
        names = table["choices"].get(key, values.get(key, []))
        yield from (f"{key}={start}{name} " for name in names if name.startswith(last))
        return
    for each in (*(f"{group}=" for group in table["choices"]), *(f"{key}=" for key in values)):
        if each.startswith(word):
            dot = each.find(".", len(word))
            yield each if dot < 0 else each[: dot + 1]


def read_table(files: list[str]) -> "CompletionTable":
    """Returns the table of all components, with those of the user's files, from the cache if there
    are no such files.
    """
    cached = _cache_file()
    if not files:
        with suppress(OSError, ValueError):
            return json.loads(cached.read_text(encoding="utf-8"))
    from xformer_kit.config import GROUPS, import_components
    from xformer_kit.config.line.completion_table import completion_table

    if files:
        import_components(files, GROUPS.values())
        return completion_table()
    table = completion_table()
    with suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        for previous in cached.parent.glob("completion-*.json"):
            previous.unlink(missing_ok=True)
        temporary = cached.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(table), encoding="utf-8")
        temporary.replace(cached)
    return table


def _component_files(words: list[str]) -> list[str]:
    """Returns the files of components=[FILE, ...] on a line, and of --components FILE."""
    found = [each.removeprefix("components=") for each in words if each.startswith("components=")]
    files = [file.strip(" '\"") for each in found for file in each.strip("[]").split(",")]
    flagged = [after for flag, after in pairwise(words) if flag == "--components"]
    return [file for file in (*files, *flagged) if file]


def _configs(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yields (group, name) of each config in the directory of --config-dir."""
    for flag, directory in pairwise(word for each in words for word in each.split("=", 1)):
        if flag in ("--config-dir", "-cd") and directory:
            root = user_path(directory)
            for path in root.glob("*/**/*.yaml"):
                group, *name = path.relative_to(root).with_suffix("").parts
                yield group, "/".join(name)


def _cache_file() -> Path:
    """Returns the file of the table, whose name contains a hash of the state of code and conf/."""
    state = hashlib.sha256(f"{sys.version_info}".encode())
    for folder in ("xformer_kit", "conf"):
        for path in sorted((CHECKOUT / folder).rglob("*.*")):
            if path.suffix in (".py", ".yaml"):
                status = path.stat()
                state.update(f"{path}{status.st_mtime_ns}{status.st_size}".encode())
    cache = os.environ.get("XDG_CACHE_HOME") or user_path("~/.cache")
    return Path(cache, "xformer_kit", f"completion-{state.hexdigest()[:16]}.json")
