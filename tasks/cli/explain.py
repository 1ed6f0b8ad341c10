"""Explain which kernel computes the scores of each attention, from overrides as on train.py's
command line, or from a run's
directory: how it runs, why not a faster one, and what that costs in memory in training. Nothing is
allocated.
"""

from collections.abc import Iterator
from typing import Any

from tasks.cli.command import (
    console,
    grid,
    indented,
    output,
    say,
    say_wrapped,
    size,
    styled,
    subject,
)

SUMMARY = "which kernel computes each attention, why not a faster one, and its memory"
EXAMPLES = """examples:
  xformer explain
  xformer explain model=decoder mask=sliding_window position=t5
  xformer explain attn.score.name=entmax data.seq_len=2048 data.batch_size=8
  xformer explain outputs/decoder/2026-11-20_12-00-00 --json"""
OPTIONS = {
    "what* OVERRIDE | RUN": "overrides such as mask=sliding_window, or one run's directory",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    config, path = subject(args.what, args.components, "explain")
    from xformer_kit.inspect.explain import explain

    found = explain(config)
    plain = found._asdict()
    plain["attentions"] = [
        item._asdict() | {"run": item.run and item.run._asdict(), "faster": dict(item.faster)}
        for item in found.attentions
    ]
    title = str(path or " ".join(args.what) or "the default model")
    return output(args, plain, _show, found, title)


def _show(found: Any, title: str) -> None:
    screen = console()
    say_wrapped(screen, (title, "bold"))
    texts = "of documents kept apart" if found.documents else "without padding"
    rows = f"{found.rows} sequences" if found.rows > 1 else "1 sequence"
    step = f"a step of training on {rows} of {found.seq_len:,} tokens {texts}"
    say_wrapped(screen, (f"{step}, {found.precision}, {found.device}", "dim"))
    for item in found.attentions:
        screen.print()
        say_wrapped(screen, (item.where, "bold cyan"), (f"  {_what(item)}", "dim"))
        lines = ((left, styled(said, "bold" * (left == "kernel"))) for left, said in _lines(item))
        indented(screen, grid(lines, "dim", "", whole=[0]))
    if not found.attentions:
        say(screen, ("no attention", "dim"))


def _what(item: Any) -> str:
    return f"{item.component}, mask {item.mask}, position {item.position}"


def _lines(item: Any) -> Iterator[tuple[str, str]]:
    yield "kernel", item.kernel
    if item.kernel == "none":
        yield "runs", f"in a way of its own, without one of the kernels: {item.component}"
        return
    for kernel, reason in item.faster:
        yield f"not {kernel}", reason
    if item.run is None:
        yield "runs", "not known: a component reads values"
        return
    yield "runs", item.run.how
    yield "memory", _memory(item)


def _memory(item: Any) -> str:
    run, components = item.run, []
    if run.tables:
        shared = f", once for all {item.layers} layers" if item.layers > 1 else ""
        components.append(f"{size(run.tables)} of masks and biases{shared}")
    if run.kept:
        whole = f", {size(run.kept * item.layers)} in all" if item.layers > 1 else ""
        components.append(
            f"at least {size(run.kept)} of scores that each layer keeps for the gradient{whole}"
        )
    return "; ".join(components) or "nothing that grows with the number of pairs"
