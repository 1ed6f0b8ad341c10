"""Draw masks, biases of positions, attention weights, learning curves, and norms of
activations and gradients.

mask and bias take overrides as on train.py's command line, or a run's directory; the others take
directories of runs.
"""

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from tasks import Config
from tasks.cli.command import CHECKPOINT_OPTION, import_files, load_run, resolve_config
from tasks.process.command_faults import faults_at, flag, refuse, too_small
from xformer_kit.files.saved_files import check_stays_inside
from xformer_kit.metrics import TRAIN_LOSS, VAL_LOSS
from xformer_kit.registry import Fault, config_error, suggestion
from xformer_kit.text.command_lines import for_shell
from xformer_kit.text.user_path import user_path

SUMMARY = "pictures of masks, biases, attention weights, learning curves and norms"
EXAMPLES = """examples:
  xformer plot mask mask=sliding_window mask.window=16 --length 64
  xformer plot bias position=alibi --save alibi.svg
  xformer plot attention RUN --text "To be, or not to be" --layers 0,3 --heads 0
  xformer plot attention RUN --text "jump twice" --target "JUMP JUMP" --layers decoder.1.cross
  xformer plot curves outputs/decoder/* --metric val/loss --save curves.pdf
  xformer plot norms RUN   # of a run with callbacks.norms.every=50"""
MAX_LENGTH = 256  # tokens, if --length is not given
OPTIONS = {
    "kind? KIND": "mask, bias, attention, curves or norms",
    "inputs* OVERRIDE | RUN": "overrides such as mask=causal, or directories of runs",
    "--save FILE": "output file: .png, .svg or .pdf (KIND.png in the run's pictures/, or here)",
    "--length N": f"tokens of a mask or a bias (data.seq_len, at most {MAX_LENGTH})",
    "--prefix N": "tokens of a prefix, for masks with a bidirectional prefix (a quarter)",
    "--text TEXT": "the input text; may contain <mask> for models that fill masks",
    "--target TEXT": "the target, with sources and targets (the model's own answer)",
    "--layers A,B": "numbers from 0 on, or names such as decoder.1.cross (all)",
    "--heads A,B": "numbers from 0 on (all)",
    **CHECKPOINT_OPTION,
    "--metric A,B": f"columns of metrics.csv ({TRAIN_LOSS},{VAL_LOSS})",
}


def run(args: Any) -> int:
    from tasks.generation.translation import check_writable
    from xformer_kit.inspect.picture import picture_format
    from xformer_kit.inspect.style import require_matplotlib

    _check_options(args)
    require_matplotlib()
    if args.save is not None:
        with faults_at("--save"):
            picture_format(check_writable(args.save, "--save"))
    draw, _ = KINDS[args.kind]
    picture, directory = draw(args)
    if args.save is None and directory.name:  # pictures/ of a run
        check_stays_inside(directory.parent)
        directory.mkdir(exist_ok=True)
    print(picture.save(args.save or directory / f"{args.kind}.png"))
    if picture.note:
        print(picture.note, file=sys.stderr)
    return 0


def _check_options(args: Any) -> None:
    """Raises ConfigError for an unknown kind, and for an option of another kind."""
    if args.kind not in KINDS:
        fix = suggestion(args.kind or "", KINDS)
        raise config_error("plot", "needs a kind of picture", args.kind or "", fix)
    faults = [*too_small(vars(args), length=1, prefix=0)]
    for name in dict.fromkeys(name for _, options in KINDS.values() for name in options):
        kinds = [kind for kind, (_, options) in KINDS.items() if name in options]
        if getattr(args, name) is not None and args.kind not in kinds:
            rule = f"belongs to {' and '.join(kinds)}"
            faults.append(Fault(flag(name), rule, f"plot {args.kind}", "Leave it out."))
    refuse(faults)


def _run_paths(args: Any, expected: str, count: int | None = None) -> list[Path]:
    """Returns the directories of runs on the command line. Raises ConfigError for overrides, for
    none, and for another number than `count`.
    """
    from xformer_kit.config.saved.run_directories import example_of_run, run_directories

    runs = args.inputs
    if not runs or any("=" in word for word in runs) or count not in (None, len(runs)):
        got = " ".join(runs) or "none"
        fix = example_of_run(sentence="Try {}.", as_text=for_shell)
        raise config_error(f"plot {args.kind}", f"takes {expected}", got, fix)
    return [user_path(run) for run in runs] if count else run_directories(runs)


def _one_run(args: Any) -> Path:
    return _run_paths(args, "one run's directory", count=1)[0]


def _config(args: Any) -> tuple[Config, Path | None]:
    """Returns (config, run's directory or None). Raises ConfigError if the model is too large for
    any machine.
    """
    from xformer_kit.config.faults.size import ensure_countable

    config, run_dir = resolve_config(args.inputs, args.components, f"plot {args.kind}")
    ensure_countable(config)
    return config, run_dir


def _length(args: Any, config: Config) -> int:
    return args.length or min(MAX_LENGTH, config["data"]["seq_len"])


def _default_directory(run_dir: Path | None) -> Path:
    """Returns the directory of a picture without --save: that of the run, or the current one for
    overrides, and for a published model, whose run is in the user's cache.
    """
    from xformer_kit.checkpoint import PUBLISHED

    if run_dir is None or (run_dir / "checkpoints" / PUBLISHED).is_file():
        return Path()
    return run_dir / "pictures"


def _draw_mask(args: Any) -> tuple[Any, Path]:
    import torch

    from xformer_kit.inspect import plot_mask
    from xformer_kit.model.build import build_model

    config, run_dir = _config(args)
    length = _length(args, config)
    with torch.device("meta"):  # a mask has no weights
        model = build_model(config, 256)
    prefix = length // 4 if args.prefix is None else args.prefix
    return plot_mask(model, length, prefix=prefix), _default_directory(run_dir)


def _draw_bias(args: Any) -> tuple[Any, Path]:
    from xformer_kit import build
    from xformer_kit.config.faults.size import memory_faults
    from xformer_kit.inspect import plot_bias

    config, run_dir = _config(args)
    if run_dir is None:
        refuse(islice(memory_faults(config, training=False), 1))
        model = build(config, config["model"].get("vocab_size") or 256)  # no bias depends on it
    else:
        args.run = str(run_dir)
        model = load_run(args).model.cpu()
    return plot_bias(model, _length(args, config)), _default_directory(run_dir)


def _draw_attention(args: Any) -> tuple[Any, Path]:
    args.run = str(_one_run(args))
    layers, heads = (text and text.split(",") for text in (args.layers, args.heads))
    if heads and not all(head.isdigit() for head in heads):
        raise config_error(
            "--heads",
            "must be numbers from 0 on, with commas between",
            got=args.heads,
            fix="Try --heads 0,1.",
        )
    from tasks.generation.attention_picture import attention_picture, attention_weights

    run = load_run(args)
    layers = layers and [int(word) if word.isdigit() else word for word in layers]
    heads = heads and list(map(int, heads))
    weights = attention_weights(run, args.text or "", args.target, layers, heads)
    return attention_picture(run, weights, heads=heads), _default_directory(run.path)


def _draw_curves(args: Any) -> tuple[Any, Path]:
    from xformer_kit.inspect import plot_curves

    import_files(args.components)
    runs = _run_paths(args, "directories of runs")
    metrics = args.metric and args.metric.split(",")
    return plot_curves(runs, metrics), _default_directory(None if runs[1:] else runs[0])


def _draw_norms(args: Any) -> tuple[Any, Path]:
    from xformer_kit.inspect import plot_norms

    run_dir = _one_run(args)
    return plot_norms(run_dir), _default_directory(run_dir)


# Kind of picture -> the function that returns (picture, default directory), and its options.
KINDS: dict[str, tuple[Callable[[Any], tuple[Any, Path]], tuple[str, ...]]] = {
    "mask": (_draw_mask, ("length", "prefix")),
    "bias": (_draw_bias, ("length", "checkpoint")),
    "attention": (_draw_attention, ("text", "target", "layers", "heads", "checkpoint")),
    "curves": (_draw_curves, ("metric",)),
    "norms": (_draw_norms, ()),
}
