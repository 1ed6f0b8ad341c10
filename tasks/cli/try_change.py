"""Try a change of a base: pairs of runs with the same seed are trained until it is clear whether
the change is better, or the budget ends.

Runs of the base are trained once and used by all tries and studies. After each pair the difference
has an always-valid interval: without an effect, a change is kept in at most 5 % of tries, whatever
the number of pairs. A try that was stopped goes on.

Exit code: 0 keep, 10 discard, 11 undecided.
"""

import re
import shlex
from typing import Any

from tasks.cli.command import print_line, print_result
from xformer_kit.metrics import VAL_LOSS
from xformer_kit.registry import config_error

SUMMARY = "keep a change or discard it: pairs of runs until that is clear"
EXAMPLES = """examples:
  xformer try norm=layer
  xformer try "attn.kv_heads=2" --base "experiment=nanogpt_cpu data.path=input.txt" --budget 20m
  xformer try "ffn=mlp ffn.expand=4" --match params --json"""
OPTIONS = {
    "change CHANGE": "overrides, in quotes if there are several",
    "--base OVERRIDES": "overrides of the base, in quotes if there are several",
    "--budget TIME": "such as 90s, 20m or 2h: no pair begins that would not end in this time",
    "--pairs N": "the largest number of pairs (20)",
    "--effect A": "the smallest improvement that matters; a change is discarded if less is certain",
    "--match params|flops|tokens|seconds": "the cost that is made equal to that of the base",
    "--tolerance A": "of the matched cost, study.budget.tolerance (0.01)",
    "--noise": "train the base also with one source of random numbers varied at a time",
    "--metric NAME": f"the metric of the comparison ({VAL_LOSS})",
    "--json": "print plain data",
}
EXIT_CODES = {"keep": 0, "discard": 10, "undecided": 11}
UNITS = {"s": 1, "m": 60, "h": 3600}


def run(args: Any) -> int:
    from tasks.study.tries import Try, run_try, sentences
    from xformer_kit.study.metric import metric

    tried = Try(
        tuple(shlex.split(args.base or "")),
        tuple(shlex.split(args.change)),
        args.metric or VAL_LOSS,
        args.match or "none",
        args.effect or 0.0,
        args.pairs or 20,
        None if args.budget is None else seconds(args.budget),
        0.01 if args.tolerance is None else args.tolerance,
        bool(args.noise),
    )
    result = run_try(tried)
    print_result(args, result, lambda: [*map(print_line, sentences(result, metric(tried.metric)))])
    return EXIT_CODES[result["decision"]]


def seconds(text: str) -> float:
    """Returns the seconds of a time such as 20m. Raises ConfigError."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text):
        return float(found[1]) * UNITS[found[2]]
    raise config_error("--budget", "must be a time", text, "Try 90s, 20m or 2h.")
