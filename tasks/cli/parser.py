"""The parser of the commands: one sentence for a wrong argument, and tables of options."""

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from xformer_kit.registry import Fault, suggestion
from xformer_kit.registry.messages import nearest

# Metavar of an option -> type of its value; the values of other options are texts.
NUMBER_TYPES = {"N": int, "K": int, "A": float, "P": float, "T": float}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports each error in one sentence, all wrong options at once, and
    prints descriptions and examples with their line breaks.
    """

    def __init__(self, **options: Any):
        self.faults: list[str] = []  # messages on values that are no numbers, or no choices
        # Yields the faults of the command's numbers that are out of their range.
        self.value_faults: Callable[[Any], Iterable[Fault]] = lambda args: ()
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )

    def error(self, message: str) -> Any:
        messages = [message]
        if found := re.search(r"arguments(?: are required:)? (.*?)(?: is required)?$", message):
            # A misspelled option explains why a required one is missing.
            names = found[1].replace(",", "").split()
            one_of = "one of " * (names[0][0] == "-" and len(names) > 1)
            needs = f"needs {one_of}{', '.join(names)}. See {self.prog} --help"
            messages = self._on_unknown_options(self.arguments) or [needs]
        if found := re.fullmatch(r"argument (?:-\w/)?(--[\w-]+): expected .*", message):
            messages = [f"{found[1]}: needs a value. See {self.prog} --help"]
        self._end([*self.faults, *messages])

    def _end(self, messages: list[str]) -> Any:
        messages = [*messages, *map(str, self.value_faults(self.found))]
        sys.stderr.writelines(f"{self.prog}: {message.rstrip('.')}.\n" for message in messages)
        raise SystemExit(2)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = suggestion(value, action.choices)
        if not action.option_strings:
            message = f"no command is called '{value}'. {known}"
            raise argparse.ArgumentError(None, message)
        self.faults.append(f"{action.option_strings[0]}: no choice is called '{value}'. {known}")

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            kind = "a whole number" if action.type is int else "a number"
            self.faults.append(f"{action.option_strings[0]}: must be {kind}; got {text!r}")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.arguments = list(sys.argv[1:] if args is None else args)
        self.found = argparse.Namespace() if namespace is None else namespace
        found, rest = super().parse_known_args(args, self.found)
        if self.faults:
            self._end([*self.faults, *self._on_unknown_options(rest)])
        return found, rest

    def reject(self, arguments: list[str]) -> Any:
        """End with one sentence on each option that this parser does not have, or on arguments."""
        unexpected = f"unexpected arguments: {' '.join(arguments)}. Leave them out"
        self._end(self._on_unknown_options(arguments) or [*self.faults, unexpected])

    def _on_unknown_options(self, arguments: list[str]) -> list[str]:
        """Returns a message for each option that this parser does not have."""
        words = itertools.takewhile(lambda word: word != "--", arguments)
        names = (word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word))
        known = self._option_string_actions
        # Without the dashes, which all have: --step and --help are not similar.
        names_of_options = [option.strip("-") for option in known]
        messages = []
        for name in dict.fromkeys(name for name in names if name not in known):
            word = name.strip("-")
            similar = [option for option in names_of_options if option.startswith(word)]
            if not similar and (option := nearest(word, names_of_options)):
                similar = [option]
            hint = f" Did you mean --{' or --'.join(similar)}?" if similar else ""
            messages.append(f"no option is called {name}.{hint} See {self.prog} --help")
        return messages


def run_name(word: str) -> str:
    """Returns the directory of the run that an argument names; an override unchanged."""
    from xformer_kit.config.saved.run_directories import named_run

    return named_run(word)


class Version(argparse.Action):
    """Prints the versions of this package and of those that a result depends on most."""

    def __call__(self, parser: Any, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        found = []
        for name in ("xformer_kit", "torch", "lightning"):
            with suppress(PackageNotFoundError):  # a checkout that is not installed
                found.append(f"{name} {version(name)}")
        print(*found, f"Python {'.'.join(map(str, sys.version_info[:3]))}", sep=", ")
        parser.exit()


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
