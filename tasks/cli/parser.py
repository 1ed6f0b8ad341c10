"""The parser of the commands: one sentence for a wrong argument, and tables of options."""

import argparse
import itertools
import platform
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from xformer_kit.registry import suggestion
from xformer_kit.registry.messages import nearest

# Metavar of an option -> type of its value; the values of other options are texts.
NUMBER_TYPES = {"N": int, "K": int, "A": float, "P": float, "T": float}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports each error in one sentence, all unknown options at once, and
    prints descriptions and examples with their line breaks.
    """

    def __init__(self, **options: Any):
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )

    def error(self, message: str) -> Any:
        # A misspelled option explains why a required one is missing.
        found = self._on_unknown_options(self.arguments)
        self._end(found or [f"{message}. See {self.prog} --help"])

    def _end(self, messages: list[str]) -> Any:
        sys.stderr.writelines(f"{self.prog}: {message.rstrip('.')}.\n" for message in messages)
        raise SystemExit(2)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            option = "".join(f"{name}: " for name in action.option_strings)
            kind = "choice" if option else "command"
            message = f"{option}no {kind} is called '{value}'. {suggestion(value, action.choices)}"
            self._end([message])

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.arguments = args
        return super().parse_known_args(args, namespace)

    def reject(self, arguments: list[str]) -> Any:
        """End with one sentence on each option that this parser does not have, or on arguments."""
        unexpected = f"unexpected arguments: {' '.join(arguments)}. Leave them out"
        self._end(self._on_unknown_options(arguments) or [unexpected])

    def _on_unknown_options(self, arguments: list[str]) -> list[str]:
        """Returns a message for each option that this parser does not have."""
        words = itertools.takewhile(lambda word: word != "--", arguments)
        names = (word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word))
        # Without the dashes, which all have: --step and --help are not similar.
        known = [option.strip("-") for option in self._option_string_actions]
        messages = []
        for name in dict.fromkeys(names):
            if (word := name.strip("-")) not in known:
                similar = [option for option in known if option.startswith(word)]
                similar = similar or list(filter(None, [nearest(word, known)]))
                hint = f" Did you mean --{' or --'.join(similar)}?" if similar else ""
                messages.append(f"no option is called {name}.{hint} See {self.prog} --help")
        return messages


def run_name(word: str) -> str:
    """Returns the directory of the run that an argument names; an override unchanged."""
    from xformer_kit.config.saved.run_directories import named_run

    return named_run(word)


def versions() -> str:
    """Returns the versions of this package and of those that a result depends on most."""
    found = []
    for name in ("xformer_kit", "torch", "lightning"):
        with suppress(PackageNotFoundError):  # a checkout that is not installed
            found.append(f"{name} {version(name)}")
    return ", ".join([*found, f"Python {platform.python_version()}"])


def add_options(parser: Any, options: Mapping[str, str]) -> None:
    """Add the arguments of a command to its parser, from a table "NAME METAVAR" -> text of --help.

    A name without -- is positional. A suffix of the name sets how often it is given: ? at most
    once, * any number of times, + at least once; exactly one of the options with ! is required.
    a|b|c as metavar lists the choices, and a letter of NUMBER_TYPES sets the type; an option
    without a metavar is a switch. The value of an option that is not given is None.
    """
    exclusive = parser
    if any("! " in key for key in options):
        exclusive = parser.add_mutually_exclusive_group(required=True)
    for key, text in options.items():
        name, suffix, metavar = re.match(r"([\w-]+)([?*+!]?) ?(.*)", key).groups()
        to_value = run_name if "RUN" in metavar else NUMBER_TYPES.get(metavar, str)
        settings: dict[str, Any] = {"metavar": metavar, "type": to_value}
        if not metavar:
            settings = {"action": "store_true", "default": None}
        elif re.fullmatch(r"[a-z\d_|]+\|[a-z\d_]+", metavar):
            settings = {"choices": metavar.split("|")}
        if suffix == "*" and name.startswith("--"):
            settings["action"] = "append"
        elif suffix in ("?", "*", "+"):
            settings["nargs"] = suffix
        (exclusive if suffix == "!" else parser).add_argument(name, help=text, **settings)
