"""Pictures of components that are functions: schedules, norms, scores, activations."""

from typing import Any

import torch

from docs.kinds import KINDS
from xformer_kit.ffn.activations import ACTIVATIONS

INK, FAINT, BLUE = "#1a1a1a", "#c8c8c8", "#0072b2"
STEPS, WARMUP = 1000, 100
SCORES = (2.5, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0)
OPTIONS = {"k": 3}  # values of options that have no default
RATES, THETA, TRAINED, LONGER = 64, 10_000.0, 4096, 4
OTHER_CHANNELS = (1.0, -1.0, 0.5)  # of the token whose first channel varies


def schedule(figure: Any, name: str) -> str:
    factor = KINDS["schedule"].create({"name": name, "warmup": WARMUP}, max_steps=STEPS)
    axes = figure.subplots()
    axes.plot(range(STEPS), [factor(step) for step in range(STEPS)], color=INK)
    axes.set(xlabel="optimizer step", ylabel="factor of optim.lr", ylim=(0, 1.05))
    return f"{STEPS:,} steps, warmup={WARMUP}"


def norm(figure: Any, name: str) -> str:
    x = torch.linspace(-6, 6, 241)
    rows = torch.stack([x, *(torch.full_like(x, value) for value in OTHER_CHANNELS)], -1)
    module = KINDS["norm"].create({"name": name}, dim=1 + len(OTHER_CHANNELS))
    with torch.no_grad():
        y = module(rows)
    axes = figure.subplots()
    axes.plot(x.tolist(), y[:, 0].tolist(), color=INK, label="x")
    axes.plot(
        x.tolist(), y[:, 1].tolist(), color=BLUE, linestyle="--", label=f"{OTHER_CHANNELS[0]:g}"
    )
    axes.axhline(0, color=FAINT, linewidth=0.6)
    axes.legend(title="channel", frameon=False)
    axes.set(xlabel="x", ylabel="output")
    others = ", ".join(f"{value:g}" for value in OTHER_CHANNELS)
    return (
        f"Output for a token (x, {others}) with initial parameters: the first channel, and the"
        f" channel whose input is {OTHER_CHANNELS[0]:g}"
    )


def score(figure: Any, name: str) -> str:
    options = {
        key: size for key, size in OPTIONS.items() if key in KINDS["attn.score"].options(name)
    }
    module = KINDS["attn.score"].create({"name": name, **options}, heads=1).eval()
    scores = torch.tensor(SCORES).view(1, 1, 1, -1)
    with torch.no_grad():
        weights = module(scores, None)[0, 0, 0]
    axes = figure.subplots()
    axes.bar(range(len(SCORES)), weights.tolist(), color=BLUE, width=0.6)
    axes.plot(
        range(len(SCORES)),
        scores[0, 0, 0].softmax(-1).tolist(),
        "o",
        color=INK,
        markersize=3,
        label="softmax",
    )
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_xticks(range(len(SCORES)), [f"{value:g}" for value in SCORES])
    axes.legend(frameon=False)
    axes.set(xlabel="scores of a row", ylabel="weights")
    values = "".join(f", {key}={size}" for key, size in options.items())
    return (
        f"Weights of eight keys with these scores, with initial parameters{values}; dots: softmax"
    )


def scaling(figure: Any, name: str) -> str:
    module = KINDS["position.scaling"].create({"name": name})
    share = torch.arange(0, RATES, 2) / RATES
    rates = module.rates(THETA, share, torch.tensor([LONGER * TRAINED]), TRAINED) * THETA**share
    axes = figure.subplots()
    axes.plot(rates.flatten().tolist(), "o-", color=INK, markersize=3)
    axes.set(
        xlabel="pair of channels, from the fastest to the slowest",
        ylabel="rate / rate unscaled",
        ylim=(0, None),
    )
    return (
        f"Rates of {RATES // 2} pairs of channels for a text {LONGER} times longer than the"
        f" {TRAINED:,} tokens of training"
    )


def activations(figure: Any, name: str) -> str:
    x = torch.linspace(-4, 4, 161)
    curves = {
        word: f(x)
        for word, f in ACTIVATIONS.items()
        if torch.allclose(f(x)[:1], f(x[:1]), atol=1e-3)
    }
    columns = 7
    figure.set_size_inches(7.4, 1.05 * -(-len(curves) // columns))
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=0.95, wspace=0.15, hspace=0.3)
    every = figure.subplots(-(-len(curves) // columns), columns, sharex=True, sharey=True).flatten()
    for axes in every:
        axes.set_axis_off()
    for axes, (word, y) in zip(every, curves.items(), strict=False):
        axes.axhline(0, color=FAINT, linewidth=0.6)
        axes.axvline(0, color=FAINT, linewidth=0.6)
        axes.plot(x.tolist(), y.tolist(), color=INK, linewidth=1)
        axes.set(ylim=(-2, 4))
        axes.set_title(word, fontsize=7, pad=2)
    return "Activations that depend on one channel only, from -4 to 4"
