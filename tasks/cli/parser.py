"""The parser of the commands: one sentence for a wrong argument, and tables of options."""

import argparse
import itertools
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tasks.cli.other_options import similar_options
from xformer_kit.registry import suggestion
from xformer_kit.registry.command_lines import for_shell
from xformer_kit.registry.printable import printable

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
    """An ArgumentParser that reports an error in one sentence and prints descriptions and examples
    with their line breaks.
    """

    def __init__(self, **options: Any):
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )

    def error(self, message: str) -> Any:
        if found := re.search(r"arguments(?: are required:)? (.*?)(?: is required)?$", message):
            # A misspelled option explains why a required one is missing.
            unknown = self._first_unknown_option()
            message = self._unknown_option_message(unknown) if unknown else self._needs(found[1])
        if found := re.fullmatch(r"argument (?:-\w/)?(--[\w-]+): expected .*", message):
            message = f"{found[1]}: needs a value. See {self.prog} --help"
        sys.stderr.write(f"{self.prog}: {message.rstrip('.')}.\n")
        raise SystemExit(2)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = (
                f"{action.option_strings[0]}: no choice" if action.option_strings else "no command"
            )
            hint = NOT_BUILT.get(value) or suggestion(value, action.choices)
            message = f"{kind} is called '{value}'. {hint}"
            raise argparse.ArgumentError(None, message)

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            kind = "a whole number" if action.type is int else "a number"
            message = f"{action.option_strings[0]}: must be {kind}; got {text!r}"
            raise argparse.ArgumentError(None, message) from None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.arguments = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def reject(self, arguments: list[str]) -> Any:
        """End with one sentence on arguments that this parser does not have."""
        if unknown := next((word for word in arguments if word.startswith("-")), None):
            self.error(self._unknown_option_message(unknown))
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
        from xformer_kit.config.run_directories import CONFIG, example_of_run, newest_run
        from xformer_kit.registry.user_path import user_path

        names = missing.replace(",", "").split()
        of_these = f"{'one of ' * (names[0][0] == '-' and len(names) > 1)}{', '.join(names)}"
        example = next(line.strip() for line in str(self.epilog).split("\n") if "xformer" in line)
        given = next((word for word in self.arguments[:1] if word[0] != "-"), None)
        needs = f"needs {of_these}"
        takes_run = [action.metavar for action in self._get_positional_actions()][:1] == ["RUN"]
        if given and takes_run and not (user_path(given) / CONFIG).is_file():
            needs, given = f"got {printable(given)}, which is no run, and {needs}", None
        run = given or newest_run()
        if EXAMPLE_RUN.search(example) and run is None:
            return f"{needs}. {example_of_run()}"
        return f"{needs}. Try {EXAMPLE_RUN.sub(for_shell(str(run)), example)}"

    def _first_unknown_option(self) -> str | None:
        """Returns the first option on the command line that this parser does not have."""
        for word in itertools.takewhile(lambda word: word != "--", self.arguments):
            name = word.partition("=")[0]
            if re.match(r"--?[a-zA-Z]", word) and name not in self._option_string_actions:
                return word
        return None

    def _unknown_option_message(self, word: str) -> str:
        """Returns the message for an unknown option, with the options that it may mean."""
        name = word.partition("=")[0]
        argument = name.strip("-").upper()
        *more, last = similar_options(name, self._option_string_actions) or [""]
        hint = f" Did you mean {', '.join(more)}{' or ' * bool(more)}{last}?" if last else ""
        if argument in [action.metavar for action in self._get_positional_actions()]:
            hint = f" {argument} is given without a name before it."
        return f"no option is called {name}.{hint} See {self.prog} --help"


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
        settings: dict[str, Any] = {"metavar": metavar, "type": NUMBER_TYPES.get(metavar, str)}
        if not metavar:
            settings = {"action": "store_true", "default": None}
        elif re.fullmatch(r"[a-z\d_|]+\|[a-z\d_]+", metavar):
            settings = {"choices": metavar.split("|")}
        if suffix == "*" and name.startswith("--"):
            settings["action"] = "append"
        elif suffix in ("?", "*", "+"):
            settings["nargs"] = suffix
        (exclusive if suffix == "!" else parser).add_argument(name, help=text, **settings)
