"""Descriptions of a run: a line at its start, summary.json, and a short page at its end."""

import json
import os
import platform
import resource
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from tasks import Config, Facts, Files, Metrics, State
from tasks.logging.bar import compact
from tasks.logging.files import replace_text
from tasks.run.exit_codes import NONFINITE, RESTART_HINT
from xformer_kit.data.corpus import CORPORA
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import STACKS
from xformer_kit.registry import REQUIRED, ConfigError, config_error
from xformer_kit.registry import command_lines as proposed
from xformer_kit.registry.printable import printable
from xformer_kit.registry.saved_files import WAY, read_object

SUMMARY = "summary.json"
ENDED = "ended.json"  # how the last process ended of a run that is not finished: {code, text, step}
NUMBER, NONE = (int, float), type(None)
# types of what is there, and what must be
SHAPES: dict[str, tuple[State, tuple[str, ...]]] = {
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


def final_metrics(summary: Facts) -> Metrics:
    """val/loss and the other figures of the validation and test splits."""
    return {
        name: value
        for name, value in summary.items()
        if name.startswith(("val/", "test/")) and isinstance(value, NUMBER)
    }


def versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in (
        "xformer_kit",
        "torch",
        "lightning",
        "hydra-core",
        "torchmetrics",
        "tokenizers",
        "wandb",
        "numpy",
    ):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def peak_memory(device: torch.device) -> int:
    """Bytes: the most that torch allocated on a GPU, else the most that this process held."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def kernels(config: Config, vocab_size: int) -> dict[str, str]:
    """Attentions -> the kernel that computes their scores."""
    from xformer_kit.inspect import describe
    from xformer_kit.model.build import build_model
    from xformer_kit.plan import stacks

    with torch.device("meta"):
        model = build_model(config, vocab_size)
    return {
        choice.where: choice.kernel for choice in describe.kernels(config, stacks(config), model)
    }


def beginning(config: Config, model: torch.nn.Module, train: Any, run_dir: Path) -> str:
    """What is trained, on what data, and where."""
    from xformer_kit.data.corpus.probes.base import TRAIN_EXAMPLES

    stacks = " and ".join(name for name in STACKS if name in config["model"])
    size = compact(sum(p.numel() for p in model.parameters()))
    most = "up to " * hasattr(train, "lengths")
    data, count = config["data"], "fresh" if len(train) >= TRAIN_EXAMPLES else f"{len(train):,}"
    what = f"{count} examples of {most}{data['seq_len']:,} tokens"
    return f"{stacks}, {size} parameters, {data['name']}: {what}; {_short(run_dir)}"


def write(summary: State, path: Path) -> None:
    """Write summary.json as a whole: if it exists, its run is finished."""
    text = json.dumps(summary, indent=2, ensure_ascii=False, default=str)
    replace_text(path, text + "\n")


def read(run_dir: Path, name: str = SUMMARY) -> State | None:
    """The summary of a finished run; None if there is none, or if it is damaged: the run continues
    then, and rewrites it.
    """
    try:
        return _read_checked(run_dir / name)
    except (FileNotFoundError, ConfigError):
        return None


def check_summary(run_dir: Path, components: Iterable[str] = ()) -> None:
    """Raises ConfigError if a run's summary.json is there but cannot be read as what a run
    writes.
    """
    path = run_dir / SUMMARY
    first = "Move it away, then write it again" if path.is_dir() else "Write it again"
    with suppress(FileNotFoundError):
        _read_checked(path, way=f"{first}: {proposed.resume(run_dir, components)}")


def _read_checked(path: Path, way: str = WAY) -> State:
    """Raises as `xformer_kit.registry.saved_files.read_object` does, also for a figure that is no
    number.
    """
    found = read_object(path, *SHAPES[path.name], way=way)
    for key, value in found.items():
        if key.startswith(("val/", "test/")) and not isinstance(value, (int, float)):
            raise config_error(
                str(path),
                f"has a {key} of the type {type(value).__name__}, which no run writes",
                fix=way,
            )
    return found


def show(
    summary: State,
    run_dir: Path,
    sample: Any,
    components: Files = (),
) -> None:
    """The end of a run on a terminal. `components`: the files of own components that were typed."""
    from rich.table import Table
    from rich.text import Text

    from tasks.logging.console import screen

    console = screen()
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in lines(summary):
        table.add_row(name, value)
    console.print()
    console.print(table)
    if sample:
        console.print()
        _show_sample(console, sample)
    console.print()
    for command in (*activation(), *commands(summary, run_dir, sample, components)):
        console.print(Text.assemble(("  $ ", "dim"), (command, "bold")), soft_wrap=True)
    console.print()


def _show_sample(console: Any, sample: Any) -> None:
    """A continuation after its prompt; an answer below its source, with the right one if it
    differs.
    """
    from rich.text import Text

    given, written = printable(sample.prompt), printable(sample.generated)
    if not sample.expected:
        text = Text(given, style="dim").append(written, style="not dim")
        console.print(Text("It wrote  ", style="dim"), text, sep="")
        return
    pairs = [("Given     ", given), ("It wrote  ", written)]
    if sample.generated != sample.expected:
        pairs.append(("Right is  ", printable(sample.expected)))
    for title, said in pairs:
        console.print(Text(title, style="dim"), Text(said), sep="")


def activation() -> list[str]:
    """The command that activates this Python's virtual environment; empty if it is active."""
    script = Path(sys.prefix) / "bin" / "activate"
    if not script.is_file() or str(script.parent) in os.environ.get("PATH", "").split(os.pathsep):
        return []
    return [f"source {shlex.quote(str(_short(script)))}"]


def continue_hint(run: str, components: Iterable[str] = ()) -> str:
    """The message on a run that is not finished: how to continue it, or, if a step that was not
    finite ended it, what to do instead.
    """
    ended = read(Path(run).expanduser(), ENDED)
    if ended is not None and ended["code"] == NONFINITE:
        return f"A step that is not finite ended it. {RESTART_HINT}"
    return f"Go on with it: {proposed.resume(run, components)}"


def commands(
    summary: State, run_dir: Path, sample: Any = None, components: Files = ()
) -> list[str]:
    """What can be done next; without a checkpoint, nothing with this run."""
    task = summary.get("task")
    prompt = {
        "seq2seq": sample and sample.prompt,
        "language_modeling": sample and (sample.prompt if sample.expected else "The "),
        "prefix_language_modeling": "The ",
    }.get(task)
    if task in OBJECTIVES and OBJECTIVES[task].text_use in ("fills", "restores"):
        prompt = "The <mask> of"
    run, found = _short(run_dir), []
    if (run_dir / "checkpoints" / "last.ckpt").exists():
        found = [proposed.resume(run, components)] if summary.get("stopped") else []
        if prompt and len(prompt) <= MAX_PROMPT:
            found += [
                proposed.xformer(
                    "generate", run, "--prompt", _quoted(prompt), components=components
                )
            ]
        found += [proposed.xformer("evaluate", run, components=components)]
    other = summary.get("again")
    if other is None:
        return found
    return [*found, proposed.train(*other, "position=alibi", "ffn=mlp", components=components)]


def rerun_overrides(config: Config) -> list[str] | None:
    """Overrides for another run of the same kind; None if its data need more than a name."""
    data, task = config["data"]["name"], config["task"]["name"]
    if any(option.default == REQUIRED for option in CORPORA.options(data).values()):
        return None
    stacks = [stack for stack in STACKS if stack in config["model"]]
    words = {"model": "_".join(stacks), "task": task, "data": data}
    usual = {"model": "decoder", "task": "language_modeling", "data": "pydoc"}
    return [f"{key}={word}" for key, word in words.items() if word != usual[key]]


def _quoted(text: str) -> str:
    return shlex.quote(text) if set('"$`!\\') & set(text) else f'"{text}"'


def lines(summary: State) -> list[tuple[str, str]]:
    found = [("Ended", summary["stopped"])] if summary.get("stopped") else []
    speed, left = summary["tokens_per_second"], summary.get("steps_left_out")
    found += [
        *figures(final_metrics(summary)),
        ("Parameters", compact(summary["params"])),
        ("Speed", f"{compact(speed)} tokens/s" if speed else "not measured"),
        ("Run", str(_short(Path(summary["run"])))),
    ]
    if left:
        steps = f"{left:,} of {summary['steps']:,} steps"
        found.append(("Left out", f"{steps}: their loss or gradient was not finite"))
    if (Path(summary["run"]) / "profile.txt").exists():
        found.append(("Profile", "profile.txt and trace.json in the run's directory"))
    return found


def figures(found: Facts) -> list[tuple[str, str]]:
    """Titles and texts of the figures of one or several splits."""
    from tasks import metrics

    def title(split: str, *part: str) -> str:
        if len(part) > 1:  # of a mixture
            return f"Validation loss of {part[0]}"
        name = metrics.metric_title(*part) if part else metrics.metric_title(split)
        of = {"test": "Test ", "val": "Validation "}.get(split, "")
        return TITLES.get("/".join((split, *part))) or f"{of}{name}"

    return [
        (title(*key.split("/")), metrics.format_metric(key.rpartition("/")[2], value))
        for key, value in found.items()
        if key.count("/") < 2 or key.endswith("/loss")  # of a part of a mixture only its loss
    ]


MAX_PROMPT = 100  # characters of a prompt that a command is shown with
TITLES = {
    "val/loss": "Validation loss",
    "val/bits_per_byte": "Bits per byte",
    "val/perplexity": "Perplexity",
}


def _short(path: Path) -> Path:
    """Relative to where the user is; absolute from outside, and where the run itself is the place
    to be.
    """
    whole, here = path.resolve(), Path.cwd()
    return whole.relative_to(here) if here in whole.parents else whole
