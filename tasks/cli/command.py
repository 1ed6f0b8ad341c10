"""Functions shared by all commands: printing, loading a run, number formats."""

import itertools
import json
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks import Config
from xformer_kit.registry import ConfigError, Fault, config_error, suggestion
from xformer_kit.text.printable import printable
from xformer_kit.text.user_path import is_override, user_path

if TYPE_CHECKING:
    from tasks.generation.decoding import LoadedRun
    from xformer_kit.checkpoint import Checkpoint

CHECKPOINTS = (
    "last",
    "previous",
    "best",
    "model",
    "published",
)  # in the order in which they are tried
CHECKPOINT_OPTION = {
    "--checkpoint best|last|STEP": (
        "which weights, STEP: of a kept step (best; another if that one is missing or damaged)"
    ),
}


def console() -> Any:
    """Returns the console that prints to stdout, 120 columns wide if stdout is piped."""
    from tasks.logging.console import create_console

    default = create_console()
    return default if has_width(default) else create_console(width=120)


def has_width(console: Any) -> bool:
    """Whether the output ends at a column: that of a terminal, or COLUMNS."""
    return console.is_terminal or "COLUMNS" in os.environ


def print_json(data: Any) -> None:
    # json.dumps leaves DEL and C1 control characters as they are.
    print(printable(json.dumps(data, indent=2, ensure_ascii=False, default=str)))


def print_result(args: Any, data: Any, print_page: Any, *page: Any) -> int:
    """Print `data` with --json, else call print_page(*page); returns exit code 0."""
    if args.json:
        print_json(data)
    else:
        print_page(*page)
    return 0


def import_files(files: list[str]) -> None:
    """Register the components of a user's files. Raises ConfigError."""
    from xformer_kit.config import GROUPS, import_components

    import_components(files, GROUPS.values())


def study_directory(study: str) -> Path:
    """Returns a study's directory, given as a path or as a name under outputs/studies. Raises
    ConfigError if there is none.
    """
    from tasks.study.saved_plan import PLAN

    studies = Path("outputs", "studies")
    for directory in (user_path(study), studies / study):
        if (directory / PLAN).is_file():
            return directory
    known = sorted(str(path.parent.relative_to(studies)) for path in studies.glob(f"**/{PLAN}"))
    rule = f"is no study, a directory with {PLAN}"
    raise config_error(study, rule, fix=suggestion(study, known, of=f"In {studies}"))


def open_run(run: str, components: list[str]) -> tuple[Path, Config]:
    """Returns (directory, config) of a run, after importing the user's components; run: its
    directory, that of a published model, or the name of one on the hub.

    Raises ConfigError if it is not a run, if its config has faults, or if the run was started with
    components that are missing here.
    """
    from xformer_kit.config.saved.run_directories import example_of_run
    from xformer_kit.config.saved.saved_run import read_run

    path = user_path(run)
    if not (path / "config.yaml").is_file():
        from xformer_kit.pretrained import run_directory

        path = run_directory(run)
    if not path.is_dir():
        raise config_error(run, "is no directory", fix=example_of_run())
    return path, read_run(path, components)


def load_run(args: Any, default: str = "best", tokenizer: bool = True) -> "LoadedRun":
    """Returns the run of a command with its model, from args.checkpoint, or from the checkpoint
    `default` if args.checkpoint is None. In that case a damaged checkpoint is replaced by the next
    undamaged one, with a message on stderr. tokenizer: whether the model must have one.

    Raises ConfigError, also if no checkpoint can be read.
    """
    import torch

    from tasks.generation.decoding import LoadedRun
    from tasks.logging import summary
    from xformer_kit.api import restore_model
    from xformer_kit.objective import objective_of

    path, config = open_run(args.run, args.components)
    name, checkpoint = read_checkpoint(path, args, default)
    if sentence := summary.diverged(path):
        step = f"{checkpoint.global_step:,}"
        print(f"{path}: {sentence} The weights are those of step {step}.", file=sys.stderr)
    model = restore_model(path, config, checkpoint)
    if tokenizer and model.tokenizer is None:
        rule, fix = "has no tokenizer.json", "Save the model's tokenizer there."
        raise config_error(args.run, rule, fix=fix)
    objective = objective_of(config)
    objective.tokenizer = model.tokenizer
    objective.source_tokenizer = model.source_tokenizer
    device = "cuda" if torch.cuda.is_available() else "cpu"
    fingerprint = checkpoint.data_fingerprint
    return LoadedRun(model.to(device), objective, config, path, name, fingerprint)


def read_checkpoint(path: Path, args: Any, default: str) -> tuple[str, "Checkpoint"]:
    """Returns (name, content) of the checkpoint that `load_run` loads."""
    from tasks.logging import summary
    from xformer_kit.checkpoint import DamagedError, checkpoint_files, read

    requested, files = args.checkpoint, checkpoint_files(path / "checkpoints")
    if not files:
        fix = summary.continue_hint(args.run, args.components)
        raise config_error(args.run, "has no checkpoint yet", fix=fix)
    if requested not in (None, *files):
        rule = f"{args.run} has no checkpoint '{requested}'"
        raise config_error("--checkpoint", rule, fix=f"It has: {', '.join(files)}.")
    faults: list[Fault] = []
    order = dict.fromkeys((default, *CHECKPOINTS, *files))
    for name in [name for name in order if name in files and requested in (None, name)]:
        try:
            found = read(files[name])
        except DamagedError as error:
            faults.append(Fault(f"{files[name]}", f"is damaged ({error})"))
            continue
        if faults:
            print(*faults, f"Used instead: {name}.", file=sys.stderr)
        return name, found
    fix = "Train it again." if requested is None else "Without --checkpoint, another is taken."
    raise ConfigError(fault.with_fix(fix) for fault in faults)


def empty_directory(option: str, name: str) -> Path:
    """Returns the directory that an option names. Raises ConfigError for one with content."""
    directory = user_path(name)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise config_error(option, "must be empty or not exist", name)
    return directory


def resolve_config(
    arguments: list[str], components: list[str], command: str
) -> tuple[Config, Path | None]:
    """Returns (config, run's directory or None): composed from overrides, or read from the run's
    directory that is the only argument. Raises ConfigError for both at once.
    """
    from xformer_kit.config import compose

    runs = [word for word in arguments if not is_override(word)]
    if not runs:
        import_files(components)
        return compose(arguments, data=False, once=True), None
    if len(arguments) > 1:
        raise config_error(
            command,
            "takes overrides or one run's directory",
            got=" ".join(arguments),
            fix="Leave one of them out.",
        )
    path, config = open_run(runs[0], components)
    return config, path


def styled(text: str, style: str = "dim") -> Any:
    from rich.text import Text

    return Text(text, style)


def print_line(*texts: Any, wrap: bool = False) -> None:
    """Print a line of texts, each with or without a style: ("RUN", "bold"), " last". With `wrap`,
    it wraps between words at the edge of a terminal.
    """
    from rich.text import Text

    console().print(Text.assemble(*texts), soft_wrap=not wrap)


def print_wrapped(*texts: Any) -> None:
    """`print_line` with `wrap`."""
    print_line(*texts, wrap=True)


def print_indented(body: Any, lines_above: int = 0) -> None:
    """Print a text or table two columns to the right, after empty lines."""
    from rich.padding import Padding

    console().print(Padding(body, (lines_above, 0, 0, 2), expand=False))


def print_sections(sections: Mapping[str, Any], notes: Iterable[str]) -> None:
    """Print {heading: body}, then notes in yellow."""
    for heading, body in sections.items():
        print()
        print_wrapped((heading, "bold cyan"))
        print_indented(body)
    for note in notes:
        print()
        print_wrapped((note, "yellow"))


def table(
    rows: Iterable[Iterable[Any]],
    headings: Iterable[str] = (),
    *,
    styles: Iterable[str] = (),
    right: Collection[int] = (),
    no_wrap: Collection[int] = (),
    header_style: str = "dim",
) -> Any:
    """Returns rows as a table without rules. headings and styles: one per column, or none; right
    and no_wrap: indices of columns that are right-aligned, and of those that never wrap.
    """
    from rich.table import Table

    result = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        show_header=bool(headings),
        header_style=header_style,
    )
    columns = itertools.zip_longest(headings, styles, fillvalue="")
    for i, (heading, style) in enumerate(columns):
        result.add_column(
            heading,
            style=style,
            justify="right" if i in right else "left",
            no_wrap=i in no_wrap,
            overflow="fold",
        )
    for row in rows:
        result.add_row(*row)
    return result


def format_count(number: float) -> str:
    """Returns three digits and a unit: 987, 12.3 K, 4.56 M."""
    return _scaled(number, 1000, ("", " K", " M", " G", " T", " P"))


def format_bytes(number: float) -> str:
    """Returns a size with its unit: 512 B, 1.50 KiB, 604 MiB."""
    return _scaled(number, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def _scaled(number: float, base: int, units: Sequence[str]) -> str:
    power = 0
    while abs(number) >= 999.5 and power < len(units) - 1:
        number, power = number / base, power + 1
    whole = power == 0 or number >= 99.95
    return f"{number:{'.0f' if whole else '#.3g'}}{units[power]}"
