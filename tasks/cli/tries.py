"""List the tries of this directory: the decision on each change, the difference, the number of
pairs, and whether the change is kept if the number of tries is taken into account (false discovery
rate of at most 5 %, e-BH).
"""

from typing import Any

from tasks.cli.command import console, print_line, print_result, table

SUMMARY = "the changes that were tried, corrected for their number"
EXAMPLES = """examples:
  xformer tries
  xformer tries --json"""
OPTIONS = {"--json": "print plain data"}


def run(args: Any) -> int:
    from tasks.study.tries import history

    tried = history()
    return print_result(args, tried, _print, tried)


def _print(tried: list[dict[str, Any]]) -> None:
    from xformer_kit.study.metric import metric
    from xformer_kit.study.statistics import Estimate

    if not tried:
        print_line("No change was tried in this directory. Try xformer try norm=layer")
        return
    rows = []
    for one in tried:
        estimate = Estimate(**one["difference"])
        mean, span = metric(one["metric"]).estimate(estimate, signed=True)
        kept = "yes" if one["kept"] else "no"
        change, base = " ".join(one["change"]), " ".join(one["base"])
        rows.append((change, base, one["decision"], mean, span, str(one["pairs"]), kept))
    header = ("change", "base", "decision", "difference", "interval", "pairs", "kept of all")
    console().print(table(rows, header, right=(3, 4, 5)))
