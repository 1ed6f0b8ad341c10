"""Find the learning rate by a range test: train for a few steps while the rate increases, and plot
the loss against it (Smith, 2015, arXiv:1506.01186, section 3.3; the rate increases geometrically
here, and linearly there). The proposal is the rate at which the loss falls most steeply.

Takes overrides as on train.py's command line. Writes only the picture.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tasks import Config
from tasks.cli.command import import_files, print_result
from tasks.process.command_faults import faults_at, refuse, too_small
from xformer_kit.registry import Fault, Faults, config_error
from xformer_kit.text import command_lines

SUMMARY = "the learning rate at which the loss falls most steeply, with a picture"
EXAMPLES = """examples:
  xformer find-lr
  xformer find-lr model.dim=256 optim=adamw --min 1e-5 --max 1 --steps 200
  xformer find-lr data=text data.path=input.txt --save lr.svg"""
LOW, HIGH, STEPS, MIN_STEPS, MAX_STEPS = 1e-5, 1.0, 100, 20, 100_000
OPTIONS = {
    "inputs* OVERRIDE": "overrides such as model.dim=256, as for python train.py",
    "--min A": f"the first learning rate ({LOW:g})",
    "--max A": f"the last learning rate ({HIGH:g})",
    "--steps N": f"optimizer steps ({STEPS})",
    "--save FILE": "output file: .png, .svg or .pdf (find_lr.png)",
    "--json": "print plain data",
}
DIVERGED = 4.0  # the test ends at a loss of this many times the lowest one


class RangeTest(NamedTuple):
    rates: list[float]  # one per step
    losses: list[float]  # of each step's batch, nats per token
    smoothed: list[float]
    proposal: float | None  # None if the loss never fell


def run(args: Any) -> int:
    low = LOW if args.min is None else args.min
    high = HIGH if args.max is None else args.max
    refuse(_value_faults(low, high, args))
    from tasks.generation.translation import check_writable
    from xformer_kit.inspect.picture import picture_format
    from xformer_kit.inspect.style import require_matplotlib

    steps, file = args.steps or STEPS, Path(args.save or "find_lr.png")
    with faults_at("--save"):
        picture_format(check_writable(str(file), "--save"))
    import_files(args.components)
    config = config_of(args.inputs)
    require_matplotlib()
    result = range_test(config, low, high, steps)
    plot(result).save(file)
    words = [word for word in args.inputs if word.lstrip("+").partition("=")[0] != "optim.lr"]
    command = None
    if result.proposal is not None:
        proposed = f"optim.lr={result.proposal:g}"
        command = command_lines.train(*words, proposed, components=args.components)
    ended = len(result.losses) < steps
    data = {**result._asdict(), "picture": str(file), "command": command}
    print_result(args, data, _print_page, result, file, command, ended)
    return 0 if command else 1


def _value_faults(low: float, high: float, args: Any) -> Faults:
    """Yields the faults of bounds that are no range of rates, and of too many or too few steps."""
    if not 0 < low < high < math.inf:
        rule = "must be above 0 and below --max, which is finite"
        yield Fault("--min", rule, got=f"{low:g} and {high:g}")
    if (args.steps or STEPS) > MAX_STEPS:
        yield Fault("--steps", f"must be at most {MAX_STEPS:,}", got=f"{args.steps:,}")
    yield from too_small(vars(args), steps=MIN_STEPS)


def config_of(words: list[str]) -> Config:
    """Returns the config of overrides. Raises ConfigError."""
    from tasks.run.short_fit import single_device_config

    config = single_device_config(words, "find-lr")
    if not config["optim"].get("lr"):
        raise config_error("optim.lr", "must be above 0", got=config["optim"].get("lr"))
    return config


def range_test(config: Config, low: float, high: float, steps: int) -> RangeTest:
    """Trains a config for `steps` steps, in which the learning rate optim.lr increases
    geometrically from `low` to `high`. Ends earlier if the loss diverges. Raises ConfigError.
    """
    from lightning.pytorch import Callback

    from tasks.run.short_fit import fit

    rates = [low * (high / low) ** (step / (steps - 1)) for step in range(steps)]
    losses: list[float] = []

    class Recorder(Callback):
        def on_train_start(self, trainer: Any, task: Any) -> None:
            task.schedule = lambda step: rates[step] / config["optim"]["lr"]

        def on_train_batch_end(self, trainer: Any, task: Any, *_: Any) -> None:
            nats, tokens, *_ = task.step_state.sums.tolist()
            loss = nats / tokens
            if not math.isfinite(loss) or loss > DIVERGED * min([*losses, math.inf]):
                trainer.should_stop = True
            else:
                losses.append(loss)

    fit(config, steps, Recorder())
    smoothed = smooth(losses, width=2 * (steps // 20) + 1)
    rates = rates[: len(losses)]
    return RangeTest(rates, losses, smoothed, steepest(rates, smoothed))


def smooth(values: Sequence[float], width: int) -> list[float]:
    """Returns the mean of each value and its neighbours, `width` values in all, fewer at the
    ends; this moves no point along the axis, as an average over earlier values does.
    """
    half = width // 2
    windows = (values[max(0, i - half) : i + half + 1] for i in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def steepest(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """Returns the rate, with two digits, at which the loss falls most over the logarithm of the
    rate, before its minimum; None if it never falls.
    """
    lowest = min(range(len(losses)), key=losses.__getitem__, default=0)
    slopes = {
        i: (losses[i + 1] - losses[i - 1]) / math.log(rates[i + 1] / rates[i - 1])
        for i in range(1, lowest)
    }
    i = min(slopes, key=slopes.__getitem__, default=None)
    return float(f"{rates[i]:.1e}") if i is not None and slopes[i] < 0 else None


def plot(result: RangeTest) -> Any:
    """Returns the picture of the losses over the learning rate, which is logarithmic."""
    from xformer_kit.inspect.picture import Picture
    from xformer_kit.inspect.style import COLOURS, FAINT

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.plot(result.rates, result.losses, color=FAINT, linewidth=0.8, label="batch")
        axes.plot(result.rates, result.smoothed, color=COLOURS[2], label="smoothed")
        axes.set_xscale("log")
        if result.proposal is not None:
            label = f"steepest: optim.lr={result.proposal:g}"
            axes.axvline(result.proposal, color=COLOURS[1], linestyle="--", label=label)
        axes.set_xlabel("learning rate, optim.lr")
        axes.set_ylabel("training loss, nats per token")
        figure.legend(loc="outside lower center", ncols=3)

    return Picture(6.4, 3.8, draw)


def _print_page(result: RangeTest, file: Path, command: str | None, ended: bool) -> None:
    print(f"{len(result.losses)} steps: {file}")
    if ended:
        print("The test ended there, since the loss of the next step had diverged.")
    if command is None:
        print("The loss never fell. Try a lower --min, a higher --max, or more --steps.")
    else:
        print(f"The loss falls most steeply at {result.proposal:g}:\n  {command}")
