"""The parser of the commands: one sentence for a wrong argument, and tables of options."""

import argparse
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from tasks.cli.proposed_options import OTHER_COMMANDS, similar_options
from xformer_kit.registry import Fault, suggestion
from xformer_kit.text.command_lines import for_shell
from xformer_kit.text.printable import printable

EXAMPLE_RUN = re.compile(r"outputs/\w+/[\d_-]+")  # in the examples of a command
# Command of another library -> what to do here.
NOT_BUILT = {
    "export": "Export is not built yet; a run's weights are in RUN/checkpoints, for torch.load.",
    "convert": "Import and export are not built yet.",
    "download": "Import of published checkpoints is not built yet.",
}
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
            messages = self._on_unknown_options(self.arguments) or [self._needs(found[1])]
        if found := re.fullmatch(r"argument (?:-\w/)?(--[\w-]+): expected .*", message):
            messages = [f"{found[1]}: needs a value. See {self.prog} --help"]
        self._end([*self.faults, *messages])

    def _end(self, messages: list[str]) -> Any:
        messages = [*messages, *map(str, self.value_faults(self.found))]
        sys.stderr.writelines(f"{self.prog}: {message.rstrip('.')}.\n" for message in messages)
        raise SystemExit(2)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = (
                f"{action.option_strings[0]}: no choice" if action.option_strings else "no command"
            )
            ours = OTHER_COMMANDS.get(value.lower().replace("_", "-"))
            hint = f"Try: {self.prog} {ours}" if ours and not action.option_strings else ""
            hint = hint or NOT_BUILT.get(value) or suggestion(value, action.choices)
            message = f"{kind} is called '{value}'. {hint}"
            if not action.option_strings:
                raise argparse.ArgumentError(None, message)
            self.faults.append(message)

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
        if messages := self._on_unknown_options(arguments):
            self._end(messages)
        has_input = "--input" in self._option_string_actions
        if has_input and len(arguments) == 1 and os.path.isfile(arguments[0]):
            self.error(
                f"{arguments[0]}: is a text, not a run. Try --input {for_shell(arguments[0])}"
            )
        self.error(f"unexpected arguments: {' '.join(arguments)}. Leave them out")

    def _needs(self, missing: str) -> str:
        """Returns the message for arguments that are missing, with the first example of the
        command, in which the run is the one on the command line, or else the newest one.
        """
        from xformer_kit.config.saved.run_directories import (
            CONFIG,
            example_of_run,
            named_run,
            newest_run,
        )
        from xformer_kit.text.user_path import user_path

        names = missing.replace(",", "").split()
        of_these = f"{'one of ' * (names[0][0] == '-' and len(names) > 1)}{', '.join(names)}"
        example = next(line.strip() for line in str(self.epilog).split("\n") if "xformer" in line)
        given = next((word for word in self.arguments[:1] if word[0] != "-"), None)
        needs = f"needs {of_these}"
        takes_run = [action.metavar for action in self._get_positional_actions()][:1] == ["RUN"]
        if given and takes_run and not (user_path(named_run(given)) / CONFIG).is_file():
            needs, given = f"got {printable(given)}, which is no run, and {needs}", None
        run = given or newest_run()
        if EXAMPLE_RUN.search(example) and run is None:
            return f"{needs}. {example_of_run()}"
        return f"{needs}. Try {EXAMPLE_RUN.sub(for_shell(str(run)), example)}"

    def _on_unknown_options(self, arguments: list[str]) -> list[str]:
        """Returns a message for each option that this parser does not have."""
        words = itertools.takewhile(lambda word: word != "--", arguments)
        names = (word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word))
        unknown = dict.fromkeys(n for n in names if n not in self._option_string_actions)
        return [self._unknown_option_message(name) for name in unknown]

    def _unknown_option_message(self, name: str) -> str:
        """Returns the message for an unknown option, with the options that it may mean."""
        argument = name.strip("-").upper()
        *more, last = similar_options(name, self._option_string_actions) or [""]
        hint = f" Did you mean {', '.join(more)}{' or ' * bool(more)}{last}?" if last else ""
        if argument in [action.metavar for action in self._get_positional_actions()]:
            hint = f" {argument} is given without a name before it."
        return f"no option is called {name}.{hint} See {self.prog} --help"


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
