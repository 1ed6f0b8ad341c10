"""Functions shared by all commands: error messages, console, loading a run, number formats."""

import argparse
import itertools
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks import Config, State
from xformer_kit.registry import ConfigError, Fault, config_error, suggestion
from xformer_kit.registry.printable import printable

if TYPE_CHECKING:
    from tasks.run.generation.decoding import LoadedRun

# The types of numbers, by the metavar of their option; others are texts.
NUMBERS = {"N": int, "K": int, "A": float, "P": float, "T": float}
CHECKPOINTS = ("last", "previous", "best")  # in the order in which they are tried


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one sentence, and whose help keeps the lines of descriptions and
    examples.
    """

    def __init__(self, **options: Any):
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )

    def error(self, message: str) -> Any:
        if "required" in message and (unknown := self._unknown()):
            message = self._no_option(unknown)
        sys.stderr.write(f"{self.prog}: {message.rstrip('.')}.\n")
        raise SystemExit(2)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            of = f"{action.option_strings[0]}: no choice" if action.option_strings else "no command"
            message = f"{of} is called '{value}'. {suggestion(value, action.choices)}"
            raise argparse.ArgumentError(None, message)

    def _get_value(self, action: argparse.Action, text: str) -> Any:
        try:
            return super()._get_value(action, text)
        except argparse.ArgumentError:
            kind = "a whole number" if action.type is int else "a number"
            message = f"{action.option_strings[0]}: must be {kind}; got {text!r}"
            raise argparse.ArgumentError(None, message) from None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def unrecognized(self, words: list[str]) -> Any:
        """End with one sentence on words that this parser does not take."""
        if unknown := next((word for word in words if word.startswith("-")), None):
            self.error(self._no_option(unknown))
        self.error(f"got words that it does not take: {' '.join(words)}. Leave them out")

    def _unknown(self) -> str | None:
        """The first option on the line that this parser does not have: more to the point than a
        required one that is missing.
        """
        words = itertools.takewhile(lambda word: word != "--", self.words)
        given = (word for word in words if re.match(r"--?[a-zA-Z]", word))
        known = self._option_string_actions
        return next((word for word in given if word.partition("=")[0] not in known), None)

    def _no_option(self, word: str) -> str:
        """The message for an unknown option, with the options that start with it, or else the most
        similar one.
        """
        name, known = word.partition("=")[0], list(self._option_string_actions)
        start = f"--{name.strip('-')}"
        begun = [option for option in known if start != "--" and option.startswith(start)]
        *more, last = begun or get_close_matches(name, known, n=1) or [""]
        hint = f" Did you mean {', '.join(more)}{' or ' * bool(more)}{last}?" if last else ""
        return f"no option is called {name}.{hint} See {self.prog} --help"


def console(stderr: bool = False) -> Any:
    """Returns the console that tables are printed to. If the output is piped, its width is 120
    columns.
    """
    from tasks.logging.console import screen

    made = screen(stderr)
    return made if cuts(made) else screen(stderr, width=120)


def cuts(screen: Any) -> bool:
    """Whether long lines end at the screen's edge: a pipe has none."""
    return screen.is_terminal or "COLUMNS" in os.environ


def print_json(data: Any) -> None:
    # json.dumps leaves DEL and C1 as they are.
    print(printable(json.dumps(data, indent=2, ensure_ascii=False, default=str)))


def output(args: Any, plain: Any, show: Any, *shown: Any) -> int:
    """Print plain data with --json, else the page that `show` prints; returns exit code 0."""
    if args.json:
        print_json(plain)
    else:
        show(*shown)
    return 0


def import_files(files: list[str]) -> None:
    """Register a user's own components. Raises ConfigError."""
    from xformer_kit.config import GROUPS, import_components

    import_components(files, GROUPS.values())


def study_folder(study: str) -> Path:
    """A study's directory, given as a path or as a name under outputs/studies. Raises ConfigError
    if there is none.
    """
    from tasks.study.resolve import PLAN

    home, named = Path("outputs", "studies"), Path(study).expanduser()
    for place in (named, home / study):
        if (place / PLAN).is_file():
            return place
    if named.is_dir():
        raise config_error(
            study,
            f"is no study; it has no {PLAN}",
            fix=f"Name a study's directory such as {home}/norm_placement.",
        )
    known = sorted(str(path.parent.relative_to(home)) for path in home.glob(f"**/{PLAN}"))
    way = f"There is none in {home}; begin one: python train.py study=NAME."
    raise config_error(
        study, "no study is called so", fix=suggestion(study, known) if known else way
    )


def open_run(run: str, components: list[str]) -> tuple[Path, Config]:
    """A run's directory and its config, after importing the user's own components.

    Raises ConfigError if it is not a run, or if the run was started with components that are
    missing here.
    """
    from xformer_kit.config import read_config
    from xformer_kit.config.saved import check_components

    path = Path(run).expanduser()
    if not path.is_dir():
        raise config_error(
            run,
            "is no directory",
            fix="Name a run's directory such as outputs/decoder/2026-11-20_12-00-00.",
        )
    config = read_config(path)
    check_components(path, components)
    import_files(components)
    return path, config


def load_run(args: Any, first: str = "best") -> "LoadedRun":
    """The run of a command: with the named checkpoint, or with `first` if none is named; if
    that is damaged, the next undamaged one, and a line is printed on stderr.

    Raises ConfigError, also if no checkpoint can be read.
    """
    import torch

    from tasks.run.generation.decoding import LoadedRun
    from xformer_kit.model.api import restore_model
    from xformer_kit.objective import objective_of

    path, config = open_run(args.run, args.components)
    name, state = _readable(path, args.run, args.components, args.checkpoint, first)
    model = restore_model(path, config, args.components, state)
    objective = objective_of(config)
    objective.tokenizer = model.tokenizer
    objective.source_tokenizer = model.source_tokenizer
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return LoadedRun(model.to(device), objective, config, path, name)


def _readable(
    path: Path, run: str, components: list[str], wanted: str | None, first: str
) -> tuple[str, State]:
    """Returns the name and the state of an undamaged checkpoint."""
    from tasks.logging import summary
    from xformer_kit.model.checkpoint import DamagedError, damage, read

    files = {n: path / "checkpoints" / f"{n}.ckpt" for n in dict.fromkeys((first, *CHECKPOINTS))}
    existing = [name for name, file in files.items() if file.is_file()]
    if not existing or wanted not in (None, *existing):
        rule = "has no checkpoint yet" if wanted is None else f"has no checkpoint '{wanted}'"
        way = f"It has: {', '.join(sorted(existing))}."
        if not existing:
            way = summary.continue_hint(run, components)
        raise config_error(run, rule, fix=way)
    faults: list[Fault] = []
    for name in existing if wanted is None else [wanted]:
        try:
            state = read(files[name])
        except DamagedError as error:
            faults.append(Fault(f"{files[name]}", f"is damaged ({error})"))
            continue
        if faults:
            print(*faults, f"Taken instead: {name}.", file=sys.stderr)
        return name, state
    way = "No other checkpoint is whole; train it again."
    if whole := [name for name in existing if damage(files[name]) is None]:
        way = f"Try --checkpoint {' or '.join(whole)}."
    fault, *more = faults
    raise ConfigError(fault.with_fix(" ".join([*map(str, more), way])))


def subject(words: list[str], files: list[str], command: str) -> tuple[Config, Path | None]:
    """(config, directory of a run or None) of overrides, or of one run's directory. Raises
    ConfigError for both at once.
    """
    runs = [word for word in words if "=" not in word]
    if runs and len(words) > 1:
        raise config_error(
            command,
            "takes overrides or one run's directory",
            got=" ".join(words),
            fix="Leave one of them out.",
        )
    if runs:
        from xformer_kit.config import ensure

        path, config = open_run(runs[0], files)
        ensure(config, data=False)
        return config, path
    from xformer_kit.config import compose

    import_files(files)
    return compose(words, data=False, once=True), None


def add_options(parser: Any, options: Mapping[str, str]) -> None:
    """Add the options of a command, from a table: its text for `--help` by "NAME METAVAR".

    A name that ends in ?, * or + takes at most one value, any number, or one or more, and an option
    that ends in * may be repeated; of those that end in ! one must be given. The values are those
    of A|B|C, numbers by their letter in NUMBERS, or texts; an option without a metavar is a switch.
    What is not given is None.
    """
    one_of = parser
    if any("! " in key for key in options):
        one_of = parser.add_mutually_exclusive_group(required=True)
    for key, text in options.items():
        name, mark, metavar = re.match(r"([\w-]+)([?*+!]?) ?(.*)", key).groups()
        more: dict[str, Any] = {"metavar": metavar, "type": NUMBERS.get(metavar, str)}
        if not metavar:
            more = {"action": "store_true", "default": None}
        elif re.fullmatch(r"[\w|]+\|\w+", metavar):
            more = {"choices": metavar.split("|")}
        if mark == "*" and name.startswith("--"):
            more["action"] = "append"
        elif mark in ("?", "*", "+"):
            more["nargs"] = mark
        (one_of if mark == "!" else parser).add_argument(name, help=text, **more)


def styled(text: str, style: str = "dim") -> Any:
    from rich.text import Text

    return Text(text, style)


def say(screen: Any, *components: Any, soft_wrap: bool = True) -> None:
    """Print a line of texts, each with a style or without: ("RUN", "bold"), " last"."""
    from rich.text import Text

    screen.print(Text.assemble(*components), soft_wrap=soft_wrap)


def say_wrapped(screen: Any, *components: Any) -> None:
    """`say` a text that wraps between words at the edge of a terminal."""
    say(screen, *components, soft_wrap=False)


def indented(screen: Any, body: Any, above: int = 0) -> None:
    """Print two columns to the right, after `above` empty lines."""
    from rich.padding import Padding

    screen.print(Padding(body, (above, 0, 0, 2), expand=False))


def show_sections(screen: Any, sections: Mapping[str, Any], notes: Iterable[str]) -> None:
    """Print each body after its heading, then yellow sentences."""
    for heading, body in sections.items():
        screen.print()
        say_wrapped(screen, (heading, "bold cyan"))
        indented(screen, body)
    for sentence in notes:
        screen.print()
        say_wrapped(screen, (sentence, "yellow"))


def table(*headings: str, right: Collection[str] = (), **options: Any) -> Any:
    """A table without lines; columns whose heading is in `right` are aligned to the right."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, **{"header_style": "dim", **options})
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return made


def grid(
    rows: Iterable[Iterable[Any]],
    *styles: str,
    right: Collection[int] = (),
    whole: Collection[int] | None = None,
) -> Any:
    """Rows as a table without headings, with a style for each column; `right`: columns that are
    aligned to the right; `whole`: columns that never wrap, by default those.
    """
    from rich.table import Table

    made = Table.grid(padding=(0, 2, 0, 0))
    for at, style in enumerate(styles):
        made.add_column(
            style=style,
            justify="right" if at in right else "left",
            no_wrap=at in (right if whole is None else whole),
            overflow="fold",
        )
    for row in rows:
        made.add_row(*row)
    return made


def short(number: float) -> str:
    """Three digits and a unit: 987, 12.3 K, 4.56 M."""
    return _scaled(number, 1000, ("", " K", " M", " G", " T", " P"))


def size(number: float) -> str:
    """Bytes: 512 B, 1.50 KiB, 604 MiB."""
    return _scaled(number, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def _scaled(number: float, base: int, units: Sequence[str]) -> str:
    power = 0
    while abs(number) >= 999.5 and power < len(units) - 1:
        number, power = number / base, power + 1
    whole = power == 0 or number >= 99.95
    return f"{number:{'.0f' if whole else '#.3g'}}{units[power]}"
