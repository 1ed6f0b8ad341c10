"""Coordinate check: whether a step changes activations by as much at every width (Yang et al.,
2022, arXiv:2203.03466, appendix D.1).
"""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.config import compose
from xformer_kit.inspect.picture import Picture
from xformer_kit.inspect.style import line_style
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model
from xformer_kit.optim import create_optimizer

WIDTHS = 64, 128, 256, 512, 1024
# The batch is random and the same in each step. It has fewer tokens than the smallest width: the
# part of a step that is not along a token's own activations falls with sqrt(tokens / width), which
# is no fault of a rule.
VOCAB, ROWS, LENGTH = 256, 2, 16


class Change(NamedTuple):
    """How much the output of a module has changed."""

    module: str
    width: int  # model.dim
    step: int  # optimizer steps, from 1
    size: float  # mean of |y_step - y_0| over tokens and channels


def changes(
    words: Sequence[str], widths: Sequence[int] = WIDTHS, steps: int = 4, seeds: int = 1
) -> list[Change]:
    """Returns the changes of the outputs of all sublayers and of the logits, in models of overrides
    at each width, means over `seeds` models.

    Of logits the change is that of the head: what its initial weights add for the same hidden state
    is subtracted, since it is random and falls with width^-1/2.
    """
    found: dict[tuple[str, int, int], float] = {}
    for width in widths:
        for seed in range(seeds):
            for change in _of_model(words, width, steps, seed):
                key = change[:3]
                found[key] = found.get(key, 0.0) + change.size / seeds
    return [Change(*key, size) for key, size in found.items()]


def modules(found: Sequence[Change]) -> list[str]:
    """Returns the names of the modules, in the order of the model."""
    return list(dict.fromkeys(change.module for change in found))


def holds(found: Sequence[Change], module: str) -> bool:
    """Whether the change of a module differs by at most 10 % per doubling of the width."""
    return abs(exponent(found, module)) <= math.log2(1.1)


def exponent(found: Sequence[Change], module: str) -> float:
    """Returns a of size = c width^a, of a module after the last step, by least squares of the
    logarithms.
    """
    last = max(change.step for change in found)
    points = [
        (math.log(c.width), math.log(max(c.size, 1e-30)))
        for c in found
        if (c.module, c.step) == (module, last)
    ]
    x, y = (torch.tensor(values, dtype=torch.float64) for values in zip(*points, strict=True))
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (x * x).sum())


def _of_model(words: Sequence[str], width: int, steps: int, seed: int) -> Iterator[Change]:
    config = compose([*words, f"model.dim={width}", f"seed={seed}"], data=False)
    model = build_model(config, VOCAB)
    optimizer = create_optimizer(config["optim"], model)
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCAB, (ROWS, LENGTH + 1), generator=draw)
    inputs = {"ids": ids[:, :-1]}
    if model.two_stacks:
        source = torch.randint(VOCAB, (ROWS, LENGTH), generator=draw)
        inputs = {"source": source, "target": ids[:, :-1]}
    model.eval()  # without dropout
    first: dict[str, Tensor] = {}
    head = deepcopy(model.head)
    for step in range(steps + 1):
        outputs = _outputs(model, inputs, head)
        first = first or outputs
        if step:
            for name, output in outputs.items():
                yield Change(name, width, step, float((output - first[name]).abs().mean()))
        if step < steps:
            loss = F.cross_entropy(model(**inputs).flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def _outputs(model: Model, inputs: dict[str, Tensor], head: nn.Module) -> dict[str, Tensor]:
    """The outputs of the sublayers of all stacks, and the logits without those of the initial
    head.
    """
    found: dict[str, Tensor] = {}

    def record_logits(module: nn.Module, args: Any, output: Tensor) -> None:
        found["logits"] = output - head(args[0])

    def record(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            found[name] = output[0] if isinstance(output, tuple) else output

        return hook

    handles = [model.head.register_forward_hook(record_logits)]
    for stack_name in model.names:
        stack: Any = model.get_submodule(stack_name)
        for path, block in stack.named_blocks.items():
            for group in block.sublayer_groups:
                for sub in group:
                    hook = record(f"{stack_name}.{path}.{sub}")
                    handles.append(getattr(block, sub).register_forward_hook(hook))
    model(**inputs)
    for handle in handles:
        handle.remove()
    return found


def plot_changes(found: Sequence[Change]) -> Picture:
    """Plots one panel for each module: the change over the width, with a line for each step. Axes
    of all panels span as many powers of 2, so that equal slopes look equal.
    """
    names = modules(found)
    columns = min(4, len(names))
    rows = -(-len(names) // columns)

    def draw(figure: Any) -> None:
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes in panels[len(names) :]:
            axes.set_axis_off()
        for axes, name in zip(panels, names, strict=False):
            _draw_module(axes, [change for change in found if change.module == name])
            axes.set_title(f"{name} ~ width^{exponent(found, name):.2f}", loc="left")
        _same_span(panels[: len(names)])
        figure.supxlabel("width: model.dim (channels)")
        figure.supylabel("mean |output - initial output|")
        lines, labels = panels[0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside upper left", ncols=6)

    return Picture(max(5.4, 3.2 * columns), 2.4 * rows + 1.0, draw)


def _draw_module(axes: Any, found: Sequence[Change]) -> None:
    """Draws a line for each step."""
    from matplotlib.ticker import LogLocator, NullLocator

    for i, step in enumerate(sorted({change.step for change in found})):
        points = [change for change in found if change.step == step]
        x, y = [c.width for c in points], [c.size for c in points]
        label = f"after step {step}" if step == 1 else f"{step}"
        axes.loglog(x, y, label=label, **line_style(i))
    widths = sorted({change.width for change in found})
    axes.set_xticks(widths, [str(width) for width in widths])
    axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    axes.tick_params(labelsize=8)


def _same_span(panels: Sequence[Any]) -> None:
    """Gives vertical axes the limits with the longest ratio of any, at least 8."""
    limits = [axes.get_ylim() for axes in panels]
    ratio = max(8.0, *(high / low for low, high in limits))
    for axes, (low, high) in zip(panels, limits, strict=True):
        middle = math.sqrt(low * high)
        axes.set_ylim(middle / math.sqrt(ratio), middle * math.sqrt(ratio))
