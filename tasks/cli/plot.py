"""Draw masks, biases of positions, attention weights, learning curves, and norms of
activations and gradients.

mask and bias take overrides as on train.py's command line, or a run; the others take runs."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from tasks import Config
from tasks.cli.command import import_files, load_run, subject
from tasks.run.faults import flag, refuse, too_small
from xformer_kit.registry import Fault, config_error, suggestion

SUMMARY = "pictures of masks, biases, attention weights, learning curves and norms"
EXAMPLES = """examples:
  xformer plot mask mask=sliding_window mask.window=16 --length 64
  xformer plot bias position=alibi --save alibi.svg
  xformer plot attention RUN --text "To be, or not to be" --layers 0,3 --heads 0
  xformer plot attention RUN --text "jump twice" --target "JUMP JUMP" --layers decoder.1.cross
  xformer plot curves outputs/decoder/* --metric val/loss --save curves.pdf
  xformer plot norms RUN   # of a run with callbacks.norms.every=50"""
LENGTH = 256  # tokens at most without --length
OPTIONS = {
    "kind? KIND": "mask, bias, attention, curves or norms",
    "what* OVERRIDE | RUN": "overrides such as mask=causal, or directories of runs",
    "--save FILE": "output file: .png, .svg or .pdf (KIND.png in the run's pictures/, or here)",
    "--length N": f"tokens of a mask or a bias (data.seq_len, at most {LENGTH})",
    "--prefix N": "tokens of a prefix, for masks with a bidirectional prefix (a quarter)",
    "--text TEXT": "the input text; may contain <mask> for models that fill masks",
    "--target TEXT": "the target, with sources and targets (the model's own answer)",
    "--layers A,B": "numbers from 0 on, or names such as decoder.1.cross (all)",
    "--heads A,B": "numbers from 0 on (all)",
    "--checkpoint last|previous|best": (
        "which weights (best; another if that one is missing or damaged)"
    ),
    "--metric A,B": "columns of metrics.csv (train/loss,val/loss)",
}


def run(args: Any) -> int:
    from tasks.run.generation.translation import check_writable
    from xformer_kit.inspect.picture import ending
    from xformer_kit.inspect.style import drawable

    _fits(args)
    drawable()
    if args.save is not None:
        ending(check_writable(args.save, "--save"))
    draw, _ = KINDS[args.kind]
    picture, home = draw(args)
    if args.save is None:
        home.mkdir(exist_ok=True)
    print(picture.save(args.save or home / f"{args.kind}.png"))
    return 0


def _fits(args: Any) -> None:
    """Raises ConfigError for a kind that there is not, and for an option of another one."""
    if args.kind is None:
        raise config_error("plot", "needs a kind of picture", fix=f"Known: {', '.join(KINDS)}.")
    if args.kind not in KINDS:
        raise config_error(
            "plot", f"nothing is called '{args.kind}'", fix=suggestion(args.kind, KINDS)
        )
    kinds: dict[str, list[str]] = {}
    for kind, (_, names) in KINDS.items():
        for name in names:
            kinds.setdefault(name, []).append(kind)
    faults = [
        Fault(flag(name), f"belongs to {' and '.join(of)}", f"plot {args.kind}", "Leave it out.")
        for name, of in kinds.items()
        if getattr(args, name) is not None and args.kind not in of
    ]
    refuse(faults or too_small(vars(args), length=1, prefix=0))


def _runs(args: Any, what: str, example: str) -> list[str]:
    """The directories of runs on the command line."""
    if not args.what or any("=" in word for word in args.what):
        got = " ".join(args.what) or "none"
        raise config_error(f"plot {args.kind}", f"takes {what}", got, f"Try {example}.")
    return args.what


def _one_run(args: Any) -> str:
    what, example = "one run's directory", "outputs/decoder/2026-11-20_12-00-00"
    if len(runs := _runs(args, what, example)) > 1:
        raise config_error(f"plot {args.kind}", f"takes {what}", " ".join(runs), f"Try {example}.")
    return runs[0]


def _config(args: Any) -> tuple[Config, Path | None]:
    """(config, directory of a run or None). Raises ConfigError if no machine holds its model."""
    from xformer_kit.config.size import ensure_countable

    config, path = subject(args.what, args.components, f"plot {args.kind}")
    ensure_countable(config)
    return config, path


def _length(args: Any, config: Config) -> int:
    return args.length or min(LENGTH, config["data"]["seq_len"])


def _mask(args: Any) -> Any:
    import torch

    from xformer_kit.inspect import plot_mask
    from xformer_kit.model.build import build_model

    config, run = _config(args)
    length = _length(args, config)
    with torch.device("meta"):  # a mask has no weights
        model = build_model(config, 256)
    return plot_mask(
        model, length, prefix=length // 4 if args.prefix is None else args.prefix
    ), _home(run)


def _bias(args: Any) -> Any:
    from xformer_kit import build
    from xformer_kit.config.size import too_large
    from xformer_kit.inspect import plot_bias

    config, run = _config(args)
    size = config["model"].get("vocab_size") or 256  # no bias depends on it
    if run is None:
        refuse(islice(too_large(config, training=False), 1))
        model = build(config, size)
    else:
        args.run = str(run)
        model = load_run(args).model.cpu()
    return plot_bias(model, _length(args, config)), _home(run)


def _home(run: Any) -> Any:
    """The folder of a picture without --save."""
    return Path() if run is None else run / "pictures"


def _attention(args: Any) -> Any:
    args.run = _one_run(args)
    layers, heads = (given and given.split(",") for given in (args.layers, args.heads))
    if heads and not all(head.isdigit() for head in heads):
        raise config_error(
            "--heads",
            "must be numbers from 0 on, with commas between",
            got=args.heads,
            fix="Try --heads 0,1.",
        )
    if not args.text:
        raise config_error(
            "--text",
            "must be the text that the model reads",
            got="nothing",
            fix="Try --text 'To be, or not to be'.",
        )
    from tasks.run.generation.attention_picture import attention_picture, attention_weights

    run = load_run(args)
    layers = layers and [int(word) if word.isdigit() else word for word in layers]
    numbers = heads and [int(head) for head in heads]
    seen = attention_weights(run, args.text, args.target, layers, numbers)
    picture = attention_picture(run, seen, heads=numbers)
    return picture, run.path / "pictures"


def _curves(args: Any) -> Any:
    from xformer_kit.inspect import plot_curves

    import_files(args.components)
    runs = _runs(args, "directories of runs", "outputs/decoder/*")
    metrics = args.metric and args.metric.split(",")
    home = Path(runs[0]).expanduser() / "pictures" if len(runs) == 1 else Path()
    return plot_curves(runs, metrics), home


def _norms(args: Any) -> Any:
    from xformer_kit.inspect import plot_norms

    run = _one_run(args)
    return plot_norms(run), Path(run).expanduser() / "pictures"


# What can be drawn: by what, and the options that it has.
KINDS: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "mask": (_mask, ("length", "prefix")),
    "bias": (_bias, ("length", "checkpoint")),
    "attention": (_attention, ("text", "target", "layers", "heads", "checkpoint")),
    "curves": (_curves, ("metric",)),
    "norms": (_norms, ()),
}
