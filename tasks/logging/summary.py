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
from unicodedata import category

import torch

from tasks import Config, Facts, Files, Metrics, State
from tasks.logging.files import replace_text
from tasks.logging.run_length import format_length
from tasks.process.exit_codes import NONFINITE, RESTART_HINT
from xformer_kit.files.saved_files import RESTORE_FIX, read_object
from xformer_kit.metrics import KNOWN, TEST, VAL
from xformer_kit.metrics.printed import format_metric, metric_title
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import STACKS
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.study.numbers import compact
from xformer_kit.text import command_lines
from xformer_kit.text.printable import printable
from xformer_kit.text.user_path import user_path

SUMMARY = "summary.json"
PROFILE = "profile.txt"  # see `tasks.callbacks.profile`
ENDED = "ended.json"  # {code, text, step}: how the last process of an unfinished run ended
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
            "mfu": (*NUMBER, NONE),
            "peak_memory_bytes": NUMBER,
            "seconds": NUMBER,
            "unigram_loss": (*NUMBER, NONE),
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
UNSHOWN = ("Cc", "Cn", "Co", "Cs")  # Unicode's control, unassigned, private and surrogate
MAX_PROMPT = 100  # characters of a prompt in a proposed command


def has_steps_left(summary: Facts) -> bool:
    """Whether trainer.max_time ended the run, so that it can be resumed."""
    return "trainer.max_time" in (summary.get("stopped") or "")


def final_metrics(summary: Facts) -> Metrics:
    """Returns val/loss and the other metrics of the validation and test splits."""
    return {
        name: value
        for name, value in summary.items()
        if name.startswith((VAL, TEST)) and isinstance(value, NUMBER)
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


def start_line(config: Config, model: torch.nn.Module, data: Any, run_dir: Path) -> str:
    """Returns the model, the training data, the length and the directory of a run, in one line;
    data: its TrainingData.
    """
    from xformer_kit.data.corpus.probes.base import TRAIN_EXAMPLES

    stacks = " and ".join(name for name in STACKS if name in config["model"])
    size = compact(sum(p.numel() for p in model.parameters()))
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    trained = f" ({compact(frozen)} frozen)" if frozen else ""
    train, node = data.prepared.train, config["data"]
    is_fresh = len(train) >= TRAIN_EXAMPLES  # a probe, whose examples never repeat
    count = "fresh" if is_fresh else f"{len(train):,}"
    size_text = f"{'up to ' * hasattr(train, 'lengths')}{node['seq_len']:,}"
    examples = f"{node['name']}: {count} examples of {size_text} tokens"
    per_epoch = None if is_fresh else data.batches.steps_per_epoch
    length = format_length(config, data.total_steps, per_epoch)
    place = _relative_path(run_dir)
    return f"{stacks}, {size} parameters{trained}, {examples}, {length}; {place}"


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
    fix = f"Move it away, then write it again: {command_lines.resume(run_dir, components)}"
    with suppress(FileNotFoundError):
        _read_checked(run_dir / SUMMARY, fix=fix)


def _read_checked(path: Path, fix: str = RESTORE_FIX) -> State:
    """Returns the content of summary.json or ended.json. Raises like
    `xformer_kit.files.saved_files.read_object`, also for a metric that is no number.
    """
    found = read_object(path, *SCHEMAS[path.name], fix=fix)
    for key, value in found.items():
        if key.startswith((VAL, TEST)) and not isinstance(value, NUMBER):
            raise config_error(
                path,
                f"has a {key} of the type {type(value).__name__}, which no run writes",
                fix=fix,
            )
    return found


def show(summary: State, run_dir: Path, sample: Any, components: Files = ()) -> None:
    """Print the page at the end of a run. components: files given on the command line."""
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
    if (profile := run_dir / PROFILE).exists():
        console.print()
        short_table = profile.read_text().partition("\n\n")[0]
        console.print(Text(short_table), no_wrap=True)
    if sample:
        console.print()
        _print_sample(console, sample)
    console.print()
    commands = next_commands(summary, run_dir, sample, components)
    for command in (*activation_commands(), *commands):
        console.print(Text.assemble(("  $ ", "dim"), (command, "bold")), soft_wrap=True)
    console.print()


def _print_sample(console: Any, sample: Any) -> None:
    """Print a continuation after the end of its prompt; or a source, its answer, and the expected
    answer if that differs. Each is one line, which is cut at the width of the console; samples.csv
    has the whole texts.
    """
    from rich.text import Text

    prompt, generated = _one_line(sample.prompt), _one_line(sample.generated)
    rows = [("Given     ", Text(prompt)), ("It wrote  ", Text(generated))]
    if not sample.expected:
        shown = console.width // 4  # characters of the prompt
        start = prompt if len(prompt) <= shown else f"…{prompt[-shown:]}"
        rows = [("It wrote  ", Text(start, style="dim").append(generated, style="not dim"))]
    elif sample.generated != sample.expected:
        rows.append(("Right is  ", Text(_one_line(sample.expected))))
    for title, text in rows:
        line = Text.assemble((title, "dim"), text)
        console.print(line, no_wrap=True, overflow="ellipsis")


def _one_line(text: str) -> str:
    """Returns a text with ↵ in place of line breaks, and U+FFFD in place of characters that no
    terminal shows: control characters, and code points without a character.
    """
    line = re.sub(r"\s+", " ", re.sub(r"\s*[\n\r\u2028\u2029]\s*", "↵", text))
    return "".join("\ufffd" if category(c) in UNSHOWN else c for c in printable(line))


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
    summary: State, run_dir: Path, sample: Any = None, components: Files = ()
) -> list[str]:
    """Returns the commands on a run that are proposed at its end; those that need its weights only
    if it has a checkpoint.
    """
    task = summary.get("task")
    use = OBJECTIVES[task].text_use if task in OBJECTIVES else None
    prompt = {"goes on": "The ", "fills": "The <mask> of", "restores": "The <mask> of"}.get(use)
    if sample and (use == "answers" or (use == "goes on" and sample.expected)):
        prompt = sample.prompt
    run, commands = _relative_path(run_dir), []
    xformer = partial(command_lines.xformer, components=components)
    if (run_dir / "checkpoints" / "last.ckpt").exists():
        if has_steps_left(summary):
            commands.append(command_lines.resume(run, components))
        if prompt and len(prompt) <= MAX_PROMPT:
            commands.append(xformer("generate", run, "--prompt", prompt))
        commands.append(xformer("evaluate", run))
    commands.append(xformer("plot", "curves", run))
    if any(run_dir.glob("wandb/offline-run-*")):
        commands.append(f"wandb sync {command_lines.for_shell(str(run))}/wandb/offline-run-*")
    return commands


def summary_rows(summary: State) -> list[tuple[str, str]]:
    """Returns (title, text) of each row of the page at the end of a run."""
    speed, skipped = summary["tokens_per_second"], summary.get("steps_left_out")
    of_peak = f", MFU {share:.1%}" if (share := summary.get("mfu")) else ""
    of_what = "of the process" if summary["devices"]["kind"] == "cpu" else "allocated on the GPU"
    run_dir = Path(summary["run"])
    rows = [("Ended", summary["stopped"])] if summary.get("stopped") else []
    rows += [
        *metric_rows(final_metrics(summary), OBJECTIVES[summary["task"]].loss_unit),
        ("Parameters", compact(summary["params"])),
        ("Speed", f"{compact(speed)} tokens/s{of_peak}" if speed else "not measured"),
        ("Peak memory", f"{summary['peak_memory_bytes'] / 2**20:,.0f} MiB {of_what}"),
        ("Run", str(_relative_path(run_dir))),
    ]
    if skipped:
        steps = f"{skipped:,} of {summary['steps']:,} steps"
        rows.append(("Left out", f"{steps}: their loss or gradient was not finite"))
    if (run_dir / PROFILE).exists():
        rows.append(("Profile", f"{PROFILE} and trace.json in the run's directory"))
    return rows


def metric_rows(values: Facts, loss_unit: str = "nats per token") -> list[tuple[str, str]]:
    """Returns (title, text) of metrics such as val/loss or exact_match; of a part of a mixture,
    such as val/prose/loss, only for its loss.
    """
    rows = []
    for key, value in values.items():
        split, *part, name = key.split("/") if "/" in key else ("", key)
        if part and name != "loss":
            continue
        title, text = metric_title(name), format_metric(name, value, loss_unit)
        if part:
            title = f"Validation loss of {part[0]}"
        elif split == "test":
            title = f"Test {title}"
        elif split == "val":
            derived = name != "loss" and (known := KNOWN.get(name)) and known.of_loss
            title = title.capitalize() if derived else f"Validation {title}"
        rows.append((title, text))
    return rows


def _relative_path(path: Path) -> Path:
    """Returns the path relative to the current directory if it is inside, else absolute."""
    absolute, here = path.resolve(), Path.cwd()
    return absolute.relative_to(here) if here in absolute.parents else absolute
