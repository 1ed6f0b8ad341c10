"""Describes a run: the line at its start, summary.json, and the page at its end."""

import json
import os
import platform
import re
import resource
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tasks import Config, Facts, Files, Metrics, State
from tasks.logging.files import replace_text
from tasks.run.exit_codes import NONFINITE, RESTART_HINT
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import STACKS
from xformer_kit.registry import ConfigError, command_lines, config_error
from xformer_kit.registry.printable import printable
from xformer_kit.registry.saved_files import RESTORE_FIX, read_object
from xformer_kit.registry.user_path import user_path
from xformer_kit.study.report.numbers import compact

SAMPLE_LINES = 8  # lines of a generated text on the page
SUMMARY = "summary.json"
ENDED = "ended.json"  # {code, text, step}: how the last process of an unfinished run ended
# Components that are proposed for another run, and the most overrides that it repeats.
CHANGES = (
    ("position=alibi", "ffn=mlp"),
    ("position=alibi",),
    ("ffn=mlp",),
    ("norm=layer",),
    ("position=rotary",),
)
MAX_OVERRIDES = 20
Again = list[str] | None
NUMBER, NONE = (int, float), type(None)
# File -> types of its keys, and its required keys.
SCHEMAS: dict[str, tuple[State, tuple[str, ...]]] = {
    SUMMARY: (
        {
            "steps": int,
            "stopped": (str, NONE),
            "params": int,
            "flops_per_token": NUMBER,
            "tokens_per_second": (*NUMBER, NONE),
            "peak_memory_bytes": NUMBER,
            "seconds": NUMBER,
            "config_hash": str,
            "data_fingerprint": str,
            "versions": dict,
            "components": dict,
            "code": dict,
            "devices": dict,
            "kernels": dict,
        },
        ("steps",),
    ),
    ENDED: ({"code": int, "text": str, "step": (int, NONE)}, ("code", "text", "step")),
}
PACKAGES = (
    *("xformer_kit", "torch", "lightning", "hydra-core", "torchmetrics", "tokenizers", "wandb"),
    "numpy",
)
MAX_PROMPT = 100  # characters of a prompt in a proposed command
TITLES = {
    "val/loss": "Validation loss",
    "val/bits_per_byte": "Bits per byte",
    "val/perplexity": "Perplexity",
}


def has_steps_left(summary: Facts) -> bool:
    """Whether trainer.max_time ended the run, so that it can be resumed."""
    return "trainer.max_time" in (summary.get("stopped") or "")


def final_metrics(summary: Facts) -> Metrics:
    """Returns val/loss and the other metrics of the validation and test splits."""
    return {
        name: value
        for name, value in summary.items()
        if name.startswith(("val/", "test/")) and isinstance(value, NUMBER)
    }


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the installed PACKAGES."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def peak_memory(device: torch.device) -> int:
    """Returns the largest number of bytes that torch allocated on a GPU, or else that this process
    used.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def kernels(config: Config, vocab_size: int) -> dict[str, str]:
    """Returns {attentions: name of the kernel that computes their scores}."""
    from xformer_kit.inspect import describe
    from xformer_kit.model.build import build_model
    from xformer_kit.plan import stacks

    with torch.device("meta"):
        model = build_model(config, vocab_size)
    return {
        choice.where: choice.kernel
        for choice in describe.kernel_choices(config, stacks(config), model)
    }


def start_line(config: Config, model: torch.nn.Module, train: Any, run_dir: Path) -> str:
    """Returns the model, the training data and the directory of a run, in one line."""
    from xformer_kit.data.corpus.probes.base import TRAIN_EXAMPLES

    stacks = " and ".join(name for name in STACKS if name in config["model"])
    size = compact(sum(p.numel() for p in model.parameters()))
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    trained = f" ({compact(frozen)} frozen{_shared_by_head(config, model)})" if frozen else ""
    data, count = config["data"], "fresh" if len(train) >= TRAIN_EXAMPLES else f"{len(train):,}"
    length = f"{'up to ' * hasattr(train, 'lengths')}{data['seq_len']:,}"
    examples = f"{data['name']}: {count} examples of {length} tokens"
    return f"{stacks}, {size} parameters{trained}, {examples}; {_relative_path(run_dir)}"


def _shared_by_head(config: Config, model: Any) -> str:
    """Returns a note if model.freeze names an embedding or a head that have one weight."""
    shared = config["model"].get("freeze") and model.head.weight is model.embed.weight
    frozen = shared and not model.embed.weight.requires_grad
    return ", the embedding and the head, which share a weight" if frozen else ""


def write(summary: State, path: Path) -> None:
    """Write summary.json or ended.json atomically. A run with a summary.json is finished."""
    text = json.dumps(summary, indent=2, ensure_ascii=False, default=str)
    replace_text(path, text + "\n")


def read(run_dir: Path, name: str = SUMMARY) -> State | None:
    """Returns the content of summary.json or ended.json; None if it is missing or damaged, in which
    case the run can be resumed and writes it again.
    """
    try:
        return _read_checked(run_dir / name)
    except (FileNotFoundError, ConfigError):
        return None


def check_summary(run_dir: Path, components: Iterable[str] = ()) -> None:
    """Raises ConfigError if a run has a summary.json that is damaged."""
    path = run_dir / SUMMARY
    first = "Move it away, then write it again" if path.is_dir() else "Write it again"
    with suppress(FileNotFoundError):
        _read_checked(path, fix=f"{first}: {command_lines.resume(run_dir, components)}")


def _read_checked(path: Path, fix: str = RESTORE_FIX) -> State:
    """Returns the content of summary.json or ended.json. Raises like
    `xformer_kit.registry.saved_files.read_object`, also for a metric that is no number.
    """
    found = read_object(path, *SCHEMAS[path.name], fix=fix)
    for key, value in found.items():
        if key.startswith(("val/", "test/")) and not isinstance(value, NUMBER):
            raise config_error(
                path,
                f"has a {key} of the type {type(value).__name__}, which no run writes",
                fix=fix,
            )
    return found


def show(
    summary: State, run_dir: Path, sample: Any, again: Again = None, components: Files = ()
) -> None:
    """Print the page at the end of a run. again: the overrides of another run that is proposed.
    components: files given on the command line.
    """
    from rich.table import Table
    from rich.text import Text

    from tasks.logging.console import create_console

    console = create_console()
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for row in summary_rows(summary):
        table.add_row(*row)
    console.print()
    console.print(table)
    if sample:
        console.print()
        _print_sample(console, sample)
    console.print()
    commands = next_commands(summary, run_dir, sample, again, components)
    for command in (*activation_commands(), *commands):
        console.print(Text.assemble(("  $ ", "dim"), (command, "bold")), soft_wrap=True)
    console.print()


def _print_sample(console: Any, sample: Any) -> None:
    """Print a continuation after its prompt; or a source, its answer, and the expected answer if
    that differs.
    """
    from rich.text import Text

    prompt, generated = printable(sample.prompt), _first_lines(printable(sample.generated))
    if not sample.expected:
        text = Text(prompt, style="dim").append(generated, style="not dim")
        console.print(Text("It wrote  ", style="dim"), text, sep="")
        return
    rows = [("Given     ", prompt), ("It wrote  ", generated)]
    if sample.generated != sample.expected:
        rows.append(("Right is  ", _first_lines(printable(sample.expected))))
    for title, line in rows:
        console.print(Text(title, style="dim"), Text(line), sep="")


def _first_lines(text: str) -> str:
    """Returns at most SAMPLE_LINES lines of a text, with one empty line for several; samples.csv
    has all.
    """
    lines = re.sub(r"\n\s*\n", "\n\n", text).split("\n")
    return "\n".join([*lines[:SAMPLE_LINES], *(["..."] if len(lines) > SAMPLE_LINES else [])])


def activation_commands() -> list[str]:
    """Returns the command that activates this Python's virtual environment; none if it is
    active.
    """
    script = Path(sys.prefix) / "bin" / "activate"
    if not script.is_file() or str(script.parent) in os.environ.get("PATH", "").split(os.pathsep):
        return []
    return [f"source {command_lines.for_shell(str(_relative_path(script)))}"]


def diverged(run: str | Path) -> str:
    """Returns the sentence on a run that a step without a finite loss or gradient ended; "" for any
    other run.
    """
    ended = read(user_path(run), ENDED)
    diverged = ended is not None and ended["code"] == NONFINITE
    return "A step that is not finite ended it." if diverged else ""


def continue_hint(run: str, components: Iterable[str] = ()) -> str:
    """Returns how to continue a run that is not finished; or if a step was not finite, what to do
    instead.
    """
    if sentence := diverged(run):
        return f"{sentence} {RESTART_HINT}"
    return f"Go on with it: {command_lines.resume(run, components)}"


def next_commands(
    summary: State,
    run_dir: Path,
    sample: Any = None,
    again: Again = None,
    components: Files = (),
) -> list[str]:
    """Returns the commands that are proposed after a run; those that read the run only if it has a
    checkpoint. again: the overrides of another run.
    """
    task = summary.get("task")
    prompt = {
        "seq2seq": sample and sample.prompt,
        "language_modeling": sample and (sample.prompt if sample.expected else "The "),
        "prefix_language_modeling": "The ",
    }.get(task)
    if task in OBJECTIVES and OBJECTIVES[task].text_use in ("fills", "restores"):
        prompt = "The <mask> of"
    run, commands = _relative_path(run_dir), []
    if (run_dir / "checkpoints" / "last.ckpt").exists():
        xformer = partial(command_lines.xformer, components=components)
        if has_steps_left(summary):
            commands.append(command_lines.resume(run, components))
        if prompt and len(prompt) <= MAX_PROMPT:
            commands.append(xformer("generate", run, "--prompt", prompt))
        commands.append(xformer("evaluate", run))
    if again:
        commands.append(command_lines.train(*again, components=components))
    return commands


def rerun_overrides(config: Config) -> list[str] | None:
    """Returns the overrides for a run with another component: those of this run if they are not too
    many, else those of the kind of model, task and data. None if none of them compose, and for a
    run from the weights of another, whose components these determine.
    """
    if (config.get("init_from") or {}).get("run"):
        return None
    from xformer_kit.config import compose
    from xformer_kit.config.to_overrides import to_overrides

    with suppress(ConfigError):
        own = to_overrides(config)
        if len(own) <= MAX_OVERRIDES and (overrides := _with_other_components(own, config)):
            return overrides
    kind = _kind(config)
    with suppress(Exception):  # of a user's component, in a composition that is not the run's
        return _with_other_components(kind, compose(kind))
    return None


def _with_other_components(own: list[str], config: Config) -> list[str] | None:
    """Returns the overrides with the first of CHANGES that is valid; None if none is.

    config: what the overrides compose. The changed line is checked without composing it, for which
    Hydra takes a tenth of a second; options that the line sets are those of the new component too.
    """
    from xformer_kit.config import GROUPS, check
    from xformer_kit.config.unused_options import unused_overrides

    for words in CHANGES:
        names = dict(word.split("=") for word in words)
        if any(word in words for word in own):
            continue
        kept = [word for word in own if word.partition("=")[0] not in names]
        paths = [word.partition("=")[0].split(".") for word in kept]
        nodes = {group: GROUPS[group].defaults(name) for group, name in names.items()}
        for group, *key in paths:
            if group in nodes:
                nodes[group][key[0]] = config[group][key[0]]
        changed = {**config, **nodes}
        with suppress(Exception):  # of a user's component, as in `rerun_overrides`
            unused = unused_overrides(changed, [*map(".".join, paths), *names])
            if not check(changed) and not any(unused):
                return [*kept, *words]
    return None


def _kind(config: Config) -> list[str]:
    """Returns the overrides that select the kind of model, the task and the data."""
    data, task = config["data"]["name"], config["task"]["name"]
    stacks = [stack for stack in STACKS if stack in config["model"]]
    choices = {"model": "_".join(stacks), "task": task, "data": data}
    defaults = {"model": "decoder", "task": "language_modeling", "data": "pydoc"}
    return [f"{key}={choice}" for key, choice in choices.items() if choice != defaults[key]]


def summary_rows(summary: State) -> list[tuple[str, str]]:
    """Returns (title, text) of each row of the page at the end of a run."""
    speed, skipped = summary["tokens_per_second"], summary.get("steps_left_out")
    run_dir = Path(summary["run"])
    rows = [("Ended", summary["stopped"])] if summary.get("stopped") else []
    rows += [
        *metric_rows(final_metrics(summary), OBJECTIVES[summary["task"]].loss_unit),
        ("Parameters", compact(summary["params"])),
        ("Speed", f"{compact(speed)} tokens/s" if speed else "not measured"),
        ("Run", str(_relative_path(run_dir))),
    ]
    if skipped:
        steps = f"{skipped:,} of {summary['steps']:,} steps"
        rows.append(("Left out", f"{steps}: their loss or gradient was not finite"))
    if (run_dir / "profile.txt").exists():
        rows.append(("Profile", "profile.txt and trace.json in the run's directory"))
    return rows


def metric_rows(values: Facts, loss_unit: str = "nats per token") -> list[tuple[str, str]]:
    """Returns (title, text) of metrics such as val/loss or exact_match; of a part of a mixture,
    such as val/prose/loss, only for its loss.
    """
    from tasks.metrics import format_metric, metric_title

    rows = []
    for key, value in values.items():
        split, *part, name = key.split("/") if "/" in key else ("", key)
        if part and name != "loss":
            continue
        of = {"test": "Test ", "val": "Validation "}.get(split, "")
        title = TITLES.get(key, f"{of}{metric_title(name)}")
        text = format_metric(name, value, loss_unit)
        rows.append((f"Validation loss of {part[0]}" if part else title, text))
    return rows


def _relative_path(path: Path) -> Path:
    """Returns the path relative to the current directory if it is inside, else absolute."""
    absolute, here = path.resolve(), Path.cwd()
    return absolute.relative_to(here) if here in absolute.parents else absolute
