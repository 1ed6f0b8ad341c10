"""Compare runs in one table: config values that differ, metrics, parameters, FLOPs and speed. Runs
that differ only in their seed form one group, with the mean and its 95 % interval. Each group is
compared with the first one over common seeds.

With --tasks the runs are compared item by item on tasks that `xformer evaluate RUN --tasks` has
evaluated: for scores of 0 and 1 by McNemar's exact test, otherwise by a paired bootstrap.
"""

from collections.abc import Iterator
from typing import Any

from tasks import State
from tasks.cli.command import (
    console,
    format_bytes,
    format_count,
    print_line,
    print_result,
    table,
)
from xformer_kit.metrics import VAL_LOSS, known_metric
from xformer_kit.registry import ConfigError

SUMMARY = "runs side by side: configs, metrics, cost and speed, grouped over seeds"
EXAMPLES = """examples:
  xformer compare outputs/decoder/2026-11-20_12-00-00 --metric val/bits_per_byte
  xformer compare outputs/decoder/2026-11-20_12-00-00 outputs/decoder/2026-11-20_13-00-00
  xformer compare outputs/runs/* --json
  xformer compare RUN RUN --tasks hellaswag,arc_easy"""
OPTIONS = {
    "run+ RUN": (
        "directories of runs, or of sweeps for their runs; the others are compared with the first"
    ),
    "--metric NAME": f"the metric to compare, such as val/perplexity ({VAL_LOSS})",
    "--tasks NAME": "tasks of lm-eval to compare by, with commas between them",
    "--json": "print plain data",
}
COST_FORMATS = {
    "params": format_count,
    "flops_per_token": format_count,
    "tokens_per_second": format_count,
    "peak_memory_bytes": format_bytes,
}


def run(args: Any) -> int:
    from tasks.cli.comparison import compare_runs, compare_tasks

    if args.tasks is not None:
        data = compare_tasks(args.run, args.tasks.split(","), args.metric)
        return print_result(args, data, _print_tasks, data)
    comparison = compare_runs(args.run, args.metric, args.components)
    return print_result(args, comparison.plain(), _print, comparison)


def _print_tasks(data: State) -> None:
    for letter, run in data["runs"].items():
        print_line((f"{letter}  ", "bold cyan"), run["path"], (f"  {run['checkpoint']}", "dim"))
    print()
    for comparison in data["comparisons"]:
        print_line(comparison["sentence"])


def _print(comparison: Any) -> None:
    from tasks.cli.comparison import letter

    groups = comparison.groups
    letters = [letter(i) for i in range(len(groups))]
    for mark, group in zip(letters, groups, strict=True):
        for seed, path in group.runs.items():
            end = f", diverged at step {group.diverged[seed]:,}" if seed in group.diverged else ""
            print_line((f"{mark}  ", "bold cyan"), str(path), (f"  seed {seed}{end}", "dim"))
    page = table(
        _rows(comparison),
        ("", *letters),
        styles=("dim",),
        right=range(1, len(groups) + 1),
        header_style="bold cyan",
    )
    page.columns[0].overflow = "ellipsis"
    print()
    console().print(page)
    if comparison.answer is not None:
        print()
        for verdict in comparison.answer.verdicts:
            print_line(verdict.sentence)
    for note in comparison.notes:
        print_line((note, "yellow"))


def _rows(comparison: Any) -> Iterator[tuple[str, ...]]:
    """Yields (title, *one cell per group): config values that differ, metrics, costs."""
    from xformer_kit.config.saved.difference import as_literal

    groups = comparison.groups
    for path in comparison.differing:
        yield (
            path.removesuffix(".name"),
            *(str(as_literal(g.config[path])) if path in g.config else "" for g in groups),
        )
    for name in comparison.metrics:
        share = " (%)" if (known := known_metric(name)) and known.share else ""
        yield name + share, *(_metric_cell(name, group.values(name).values()) for group in groups)
    for name, to_text in COST_FORMATS.items():
        columns = [group.values(name).values() for group in groups]
        if name not in comparison.metrics and any(columns):
            yield (
                _cost_title(name, groups),
                *(to_text(sum(c) / len(c)) if c else "-" for c in columns),
            )


def _cost_title(name: str, groups: Any) -> str:
    """Returns the title of a cost. On a CPU the peak memory is that of the whole process."""
    title = name.replace("_", " ").removesuffix(" bytes")
    facts = [found for group in groups for found in group.summaries.values()]
    on_cpu = any(found.get("devices", {}).get("kind") == "cpu" for found in facts)
    return f"{title} (CPU: of the process)" if name == "peak_memory_bytes" and on_cpu else title


def _metric_cell(name: str, values: Any) -> str:
    """Returns the mean ± half of its 95 % interval; of one run, its value."""
    from xformer_kit.study.metric import metric
    from xformer_kit.study.statistics import interval

    found = interval(list(values))
    try:
        definition = metric(name)
    except ConfigError:  # no verdict is given on it, so its direction does not matter
        definition = metric(name, higher_is_better=False)
    if found.mean is None:
        return "-"
    if not found.sd:
        return definition.format(found.mean, 4 if found.sd is None else None, unit=False)
    digits = definition.digits(found)
    half = definition.format(found.high - found.mean, digits, unit=False)
    return f"{definition.format(found.mean, digits, unit=False)} ± {half}"
