"""Put runs side by side: where their configs differ, their figures, parameters, FLOPs and speed.
Runs that differ in their seed only are taken together, as a mean with its 95 % interval; each group
is compare_runs with the first over common seeds.
"""

from collections.abc import Iterator
from typing import Any

from tasks.cli.command import console, output, say, short, size, table
from xformer_kit.registry import ConfigError

SUMMARY = "runs side by side: configs, figures, cost and speed, seeds taken together"
EXAMPLES = """examples:
  xformer compare outputs/decoder/2026-11-20_12-00-00 outputs/decoder/2026-11-20_13-00-00
  xformer compare outputs/decoder/2026-11-20_12-00-00/* --metric val/bits_per_byte
  xformer compare outputs/runs/* --json"""
OPTIONS = {
    "run+ RUN": "directories of runs; the first is what others are compare_runs with",
    "--metric NAME": "the metric to compare, such as val/perplexity (val/loss)",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    from tasks.cli.comparison import compare_runs

    found = compare_runs(args.run, args.metric, args.components)
    return output(args, found.plain(), _show, found)


def _show(found: Any) -> None:
    from tasks.cli.comparison import letter

    screen = console()
    letters = [letter(i) for i in range(len(found.groups))]
    for mark, group in zip(letters, found.groups, strict=True):
        for seed, path in group.runs.items():
            end = f", diverged at step {group.diverged[seed]:,}" if seed in group.diverged else ""
            say(screen, (f"{mark}  ", "bold cyan"), str(path), (f"  seed {seed}{end}", "dim"))
    page = table("", *letters, right=letters, header_style="bold cyan")
    page.columns[0].overflow, page.columns[0].style = "ellipsis", "dim"
    for title, cells in _rows(found):
        page.add_row(title, *cells)
    screen.print()
    screen.print(page)
    if found.judged is not None:
        screen.print()
        for verdict in found.judged.verdicts:
            say(screen, verdict.sentence)
    for note in found.notes:
        say(screen, (note, "yellow"))


def _rows(found: Any) -> Iterator[tuple[str, list[str]]]:
    from xformer_kit.config.difference import as_literal
    from xformer_kit.study.metric import SHARES

    for path in found.differing:
        yield (
            path.removesuffix(".name"),
            [str(as_literal(g.config[path])) if path in g.config else "" for g in found.groups],
        )
    for name in found.metrics:
        share = " (%)" if name.rpartition("/")[2] in SHARES else ""
        yield (
            name + share,
            [_figure(name, list(group.values(name).values())) for group in found.groups],
        )
    units = {
        "params": short,
        "flops_per_token": short,
        "tokens_per_second": short,
        "peak_memory_bytes": size,
    }
    for name, said in units.items():
        if name in found.metrics:
            continue
        columns = [list(group.values(name).values()) for group in found.groups]
        if any(columns):
            yield (
                name.replace("_", " ").removesuffix(" bytes"),
                [said(sum(c) / len(c)) if c else "-" for c in columns],
            )


def _figure(name: str, values: list[float]) -> str:
    """A mean with what it may be off at 95 %; of one run its figure."""
    from xformer_kit.study.metric import metric
    from xformer_kit.study.statistics import interval

    found = interval(values)
    try:
        measured = metric(name)
    except ConfigError:  # it is shown, and not judged
        measured = metric(name, higher_is_better=False)
    if found.mean is None:
        return "-"
    if not found.sd:
        return measured.format(found.mean, 4 if found.sd is None else None, unit=False)
    digits = measured.digits(found)
    reach = measured.format(found.high - found.mean, digits, unit=False)
    return f"{measured.format(found.mean, digits, unit=False)} ± {reach}"
