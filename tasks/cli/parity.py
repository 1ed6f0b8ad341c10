"""Compare small models of the published families with the library transformers, which must be
installed: logits and gradients in float64 and fp32, distributions in bf16, padding, caches, and
files. Every parameter is random. Exit code 1 if a value is above its bound.
"""

import sys
from typing import Any

SUMMARY = "published families compared with transformers, in one table"
EXAMPLES = """examples:
  xformer parity
  xformer parity preset=llama preset=gemma3
  xformer parity --output parity.md"""
OPTIONS = {
    "inputs* preset=NAME": "presets whose families are compared (all)",
    "--output FILE": "write the table as a page in Markdown, too",
}


def run(args: Any) -> int:
    import torch

    from xformer_kit.parity.library import transformers
    from xformer_kit.parity.table import HEADINGS, chosen, measured, page, text_line
    from xformer_kit.registry import config_error
    from xformer_kit.text.user_path import user_path

    if other := [word for word in args.inputs if not word.startswith("preset=")]:
        fix = f"Try preset={other[0]}." if other[0].isidentifier() else ""
        raise config_error("parity", "takes preset=NAME only", " ".join(other), fix)
    cases = chosen(word.removeprefix("preset=") for word in args.inputs)
    output = None if args.output is None else user_path(args.output)
    if output is not None and not output.parent.is_dir():
        rule, fix = "is in a directory that does not exist", "Create it first."
        raise config_error("--output", rule, args.output, fix)
    transformers()
    torch.set_num_threads(1)  # matrices are so small that a second thread takes time
    print(text_line(HEADINGS, cases))
    lines = []
    for line in measured(cases):
        print(text_line(line.cells, cases), flush=True)
        lines.append(line)
    if output is not None:
        output.write_text(page(lines), encoding="utf-8")
    above = [f"{line.name}: {phrase}." for line in lines for phrase in line.above_bounds]
    print(*above, sep="\n", end="\n" if above else "", file=sys.stderr)
    return int(bool(above))
