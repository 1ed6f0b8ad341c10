"""Explain which kernel computes the scores of each attention, from overrides as on train.py's
command line, or from a run's
directory: how it runs, why not a faster one, and what that costs in memory in training. Nothing is
allocated.
"""

from collections.abc import Iterator
from typing import Any

from tasks.cli.command import console, print_json, size

SUMMARY = "which kernel computes each attention, why not a faster one, and its memory"
EXAMPLES = """examples:
  xformer explain
  xformer explain model=decoder mask=sliding_window position=t5
  xformer explain attn.score.name=entmax data.seq_len=2048 data.batch_size=8
  xformer explain outputs/decoder/2026-11-20_12-00-00 --json"""


def options(parser: Any) -> None:
    parser.add_argument(
        "what",
        nargs="*",
        metavar="OVERRIDE | RUN",
        help="overrides such as mask=sliding_window, or one run's directory",
    )
    parser.add_argument("--json", action="store_true", help="print plain data")


def run(args: Any) -> int:
    config, title = _subject(args.what, args.parts)
    from xformer_kit.inspect.explain import explain

    found = explain(config)
    if args.json:
        plain = found._asdict()
        plain["attentions"] = [
            item._asdict() | {"run": item.run and item.run._asdict(), "faster": dict(item.faster)}
            for item in found.attentions
        ]
        print_json(plain)
        return 0
    _show(found, title or "the default model")
    return 0


def _subject(words: list[str], files: list[str]) -> tuple[dict[str, Any], str]:
    """(config, title) of what the command names."""
    from xformer_kit.registry import ConfigError

    runs = [word for word in words if "=" not in word]
    if runs and len(words) > 1:
        raise ConfigError(
            f"explain: takes overrides or one run's directory; got {' '.join(words)}. Leave one of"
            " them out."
        )
    if runs:
        from tasks.cli.command import open_run
        from xformer_kit.config import ensure

        path, config = open_run(runs[0], files)
        ensure(config, data=False)
        return config, str(path)
    from tasks.cli.command import import_files
    from xformer_kit.config import compose

    import_files(files)
    return compose(words, data=False, once=True), " ".join(words)


def _show(found: Any, title: str) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    screen = console()
    screen.print(Text(title, "bold"))
    texts = "of documents kept apart" if found.documents else "without padding"
    rows = f"{found.rows} sequences" if found.rows > 1 else "1 sequence"
    screen.print(
        Text(
            f"a step of training on {rows} of {found.seq_len:,} tokens {texts}, {found.precision},"
            f" {found.device}",
            "dim",
        )
    )
    for item in found.attentions:
        screen.print()
        screen.print(Text.assemble((item.where, "bold cyan"), (f"  {_what(item)}", "dim")))
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for left, right in _lines(item):
            table.add_row(Text(left, "dim"), Text(right, "bold" if left == "kernel" else ""))
        screen.print(Padding(table, (0, 0, 0, 2), expand=False))
    if not found.attentions:
        screen.print(Text("no attention", "dim"))


def _what(item: Any) -> str:
    return f"{item.part}, mask {item.mask}, position {item.position}"


def _lines(item: Any) -> Iterator[tuple[str, str]]:
    yield "kernel", item.kernel
    if item.kernel == "none":
        yield "runs", f"in a way of its own: {item.part} forms no scores"
        return
    for kernel, reason in item.faster:
        yield f"not {kernel}", reason.rstrip(".")
    if item.run is None:
        yield "runs", "not known: a part reads values"
        return
    yield "runs", item.run.how
    yield "memory", _memory(item)


def _memory(item: Any) -> str:
    run, parts = item.run, []
    if run.tables:
        shared = f", once for all {item.layers} layers" if item.layers > 1 else ""
        parts.append(f"{size(run.tables)} of masks and biases{shared}")
    if run.kept:
        whole = f", {size(run.kept * item.layers)} in all" if item.layers > 1 else ""
        parts.append(
            f"at least {size(run.kept)} of scores that each layer keeps for the gradient{whole}"
        )
    return "; ".join(parts) or "nothing that grows with the number of pairs"
