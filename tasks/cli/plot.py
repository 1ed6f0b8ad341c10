"""Draw masks, biases of positions, what a run attends to in a text, learning curves, and norms of
activations and gradients.

mask and bias take overrides as on train.py's command line, or a run; the others take runs."""

from pathlib import Path
from typing import Any

from tasks.cli.command import import_files, load_run, on_device, subject
from tasks.refusal import refusal
from tasks.types import Config
from xformer_kit.registry import ConfigError, Fault, choices

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
    "--save FILE": "where: .png, .svg or .pdf (KIND.png in the run's pictures/, or here)",
    "--length N": f"tokens of a mask or a bias (data.seq_len, at most {LENGTH})",
    "--prefix N": "tokens of a prefix, for masks that see one whole (a quarter)",
    "--text TEXT": "what the model reads; <mask> is a hole where it fills holes",
    "--target TEXT": "the target, with sources and targets (the model's own answer)",
    "--layers A,B": "numbers from 0 on, or names such as decoder.1.cross (all)",
    "--heads A,B": "numbers from 0 on (all)",
    "--checkpoint last|previous|best": (
        "which weights (best; another if that one is missing or damaged)"
    ),
    "--metric A,B": "columns of metrics.csv (train/loss,val/loss)",
}
# What can be drawn, and the options that it has.
KINDS = {
    "mask": ("length", "prefix"),
    "bias": ("length", "checkpoint"),
    "attention": ("text", "target", "layers", "heads", "checkpoint"),
    "curves": ("metric",),
    "norms": (),
}


def run(args: Any) -> int:
    from xformer_kit.inspect.picture import ending
    from xformer_kit.inspect.style import drawable

    _fits(args)
    drawable()
    if args.save is not None:
        from tasks.generation.translation import writable

        ending(writable(args.save, "--save"))
    picture, home = {
        "mask": _mask,
        "bias": _bias,
        "attention": _attention,
        "curves": _curves,
        "norms": _norms,
    }[args.kind](args)
    path = home / f"{args.kind}.png" if args.save is None else Path(args.save)
    if args.save is None:
        home.mkdir(exist_ok=True)
    print(picture.save(path))
    return 0


def _fits(args: Any) -> None:
    """Raises ConfigError for a kind that there is not, and for an option of another one."""
    if args.kind is None:
        raise refusal("plot", "needs a kind of picture", fix=f"Known: {', '.join(KINDS)}.")
    if args.kind not in KINDS:
        raise refusal("plot", f"nothing is called '{args.kind}'", fix=choices(args.kind, KINDS))
    faults = []
    for name in dict.fromkeys(name for names in KINDS.values() for name in names):
        if getattr(args, name) is not None and name not in KINDS[args.kind]:
            others = " and ".join(kind for kind, names in KINDS.items() if name in names)
            faults.append(
                Fault(
                    f"--{name}",
                    f"belongs to {others}",
                    got=f"plot {args.kind}",
                    fix="Leave it out.",
                )
            )
    if faults:
        raise ConfigError(faults)


def _one_run(args: Any) -> str:
    if len(args.what) != 1 or "=" in args.what[0]:
        got = " ".join(args.what) or "none"
        raise ConfigError(
            f"plot {args.kind}: takes one run's directory; got {got}. Try"
            " outputs/decoder/2026-11-20_12-00-00."
        )
    return args.what[0]


def _config(args: Any) -> tuple[Config, Path | None]:
    """(config, directory of a run or None). Raises ConfigError if no machine holds its model."""
    from xformer_kit.config.size import ensure_countable

    config, path = subject(args.what, args.parts, f"plot {args.kind}")
    ensure_countable(config)
    return config, path


def _length(args: Any, config: Config) -> int:
    for name in ("length", "prefix"):
        if (given := getattr(args, name)) is not None and given < (name == "length"):
            raise refusal(f"--{name}", f"must be at least {int(name == 'length')} token", got=given)
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
        if fault := next(too_large(config, training=False), None):
            raise ConfigError(fault)
        model = build(config, size)
    else:
        model = load_run(str(run), args.parts, args.checkpoint, first="best")[0]
    return plot_bias(model, _length(args, config)), _home(run)


def _home(run: Any) -> Any:
    """The folder of a picture without --save."""
    return Path() if run is None else run / "pictures"


def _attention(args: Any) -> Any:
    run = _one_run(args)
    layers = (
        None
        if args.layers is None
        else [int(w) if w.isdigit() else w for w in args.layers.split(",")]
    )
    heads = None if args.heads is None else args.heads.split(",")
    if heads is not None and not all(head.isdigit() for head in heads):
        raise refusal(
            "--heads",
            "must be numbers from 0 on, with commas between",
            got=args.heads,
            fix="Try --heads 0,1.",
        )
    if not args.text:
        raise refusal(
            "--text",
            "must be the text that the model reads",
            got="nothing",
            fix="Try --text 'To be, or not to be'.",
        )
    from tasks.generation.attention_picture import attention_picture, seen_of
    from tasks.generation.translation import objective_of_run

    model, config, path, _ = load_run(run, args.parts, args.checkpoint, first="best")
    numbers = None if heads is None else [int(head) for head in heads]
    seen = seen_of(on_device(model), config, args.text, args.target, layers, numbers)
    return (
        attention_picture(model, objective_of_run(model, config), seen, heads=numbers),
        path / "pictures",
    )


def _curves(args: Any) -> Any:
    from xformer_kit.inspect import plot_curves

    import_files(args.parts)
    if not args.what or any("=" in word for word in args.what):
        got = " ".join(args.what) or "none"
        raise ConfigError(
            f"plot curves: takes directories of runs; got {got}. Try outputs/decoder/*."
        )
    metrics = None if args.metric is None else args.metric.split(",")
    home = Path(args.what[0]).expanduser() / "pictures" if len(args.what) == 1 else Path()
    return plot_curves(args.what, metrics), home


def _norms(args: Any) -> Any:
    from xformer_kit.inspect import plot_norms

    run = _one_run(args)
    return plot_norms(run), Path(run).expanduser() / "pictures"
