"""Coordinate check: train small models of several widths for a few steps, and compare how much the
outputs of sublayers and the logits have changed. Under muP the change does not depend on the width.
Data are random tokens. Exit code 1 if a change grows or falls with the width.
"""

from typing import Any

from tasks.process.command_faults import refuse, too_small
from xformer_kit.registry import config_error
from xformer_kit.text.user_path import user_path

SUMMARY = "whether steps change activations by as much at every width (muP)"
EXAMPLES = """examples:
  xformer coordinates model.parametrization=mup model.base_dim=64
  xformer coordinates model=encoder model.parametrization=mup model.base_dim=64 --save mup.png
  xformer coordinates optim=muon model.parametrization=mup model.base_dim=64 --widths 64,128,256"""
OPTIONS = {
    "inputs* OVERRIDE": "of the model and the optimizer; model.dim is set to each width",
    "--widths A,B": "values of model.dim (64,128,256,512,1024)",
    "--steps N": "optimizer steps (4)",
    "--seeds N": "models of each width, over which changes are averaged (3)",
    "--save FILE": "picture: .png, .svg or .pdf (coordinates.png)",
}


def run(args: Any) -> int:
    refuse(too_small(vars(args), steps=1, seeds=1))
    from tasks.cli.command import console, table
    from tasks.generation.translation import check_writable
    from xformer_kit.inspect.coordinates import changes, exponent, holds, modules, plot_changes
    from xformer_kit.inspect.picture import picture_format
    from xformer_kit.inspect.style import require_matplotlib

    require_matplotlib()
    path = user_path(args.save or "coordinates.png")
    picture_format(path)
    check_writable(str(path), "--save")
    widths, steps = _widths(args.widths), args.steps or 4
    found = changes(args.inputs, widths, steps, args.seeds or 3)
    rows = []
    for module in modules(found):
        sizes = [c.size for c in found if (c.module, c.step) == (module, steps)]
        rows.append([module, *(f"{size:.3g}" for size in sizes), f"{exponent(found, module):+.2f}"])
    right = range(1, len(widths) + 2)
    console().print(table(rows, ["change of", *map(str, widths), "exponent"], right=right))
    plot_changes(found).save(path)
    print(f"Picture: {path}")
    if wrong := [module for module in modules(found) if not holds(found, module)]:
        more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        print(f"It does not hold: the change depends on the width in {', '.join(wrong[:4])}{more}.")
        return 1
    print("It holds: no change differs by more than 10 % per doubling of the width.")
    return 0


def _widths(text: str | None) -> list[int]:
    from xformer_kit.inspect.coordinates import WIDTHS

    if text is None:
        return [*WIDTHS]
    words = text.split(",")
    if len({*words}) < 2 or not all(word.strip().isdigit() and int(word) for word in words):
        rule = "must be at least two values of model.dim"
        raise config_error("--widths", rule, text, "Try 64,128,256.")
    return sorted({int(word) for word in words})
