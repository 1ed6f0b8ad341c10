"""Explain which kernel computes the scores of each attention, from overrides as on train.py's
command line, or from a run's directory: how it runs, why not a faster one, and its memory in
training; and how the loss is computed on this machine. Nothing is allocated.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from tasks.cli.command import (
    format_bytes,
    print_indented,
    print_line,
    print_result,
    print_wrapped,
    styled,
    table,
)
from tasks.cli.describe import model_to_describe
from tasks.cli.loss_text import loss_memory, loss_way

SUMMARY = "which kernel computes each attention, why not a faster one, and how the loss is computed"
EXAMPLES = """examples:
  xformer explain
  xformer explain model=decoder mask=sliding_window position=t5
  xformer explain attn.score.name=entmax data.seq_len=2048 data.batch_size=8
  xformer explain outputs/decoder/2026-11-20_12-00-00 --json"""
OPTIONS = {
    "inputs* OVERRIDE | RUN": "overrides such as mask=sliding_window, or one run's directory",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    config, vocab_size, *_ = model_to_describe(args.inputs, args.components, "explain")
    from xformer_kit.inspect.explain import explain

    explanation = explain(config, vocab_size)
    attentions = [
        item._asdict() | {"run": item.run and item.run._asdict(), "faster": dict(item.faster)}
        for item in explanation.attentions
    ]
    title = " ".join(args.inputs) or "the default model"
    losses = explanation.losses
    plain_losses = None if losses is None else [loss._asdict() for loss in losses]
    data = explanation._asdict() | {"attentions": attentions, "losses": plain_losses}
    return print_result(args, data, _print, explanation, title)


def _print(explanation: Any, title: str) -> None:
    print_wrapped((title, "bold"))
    texts = "of documents kept apart" if explanation.documents else "without padding"
    rows = f"{explanation.rows} sequences" if explanation.rows > 1 else "1 sequence"
    step = f"a step of training on {rows} of {explanation.seq_len:,} tokens {texts}"
    print_wrapped((f"{step}, {explanation.precision}, {explanation.device}", "dim"))
    for item in explanation.attentions:
        parts = f"{item.component}, mask {item.mask}, position {item.position}"
        _print_item(item.where, parts, _lines(item))
    if not explanation.attentions:
        print_line(("no attention", "dim"))
    if explanation.losses is None:
        unknown = "not known before the tokenizer has read the text; set model.vocab_size"
        _print_item("head", "", [("loss", unknown)])
    for loss in explanation.losses or ():
        _print_item(loss.where, f"cross-entropy of {loss.tokens:,} tokens", _loss_lines(loss))


def _print_item(where: str, parts: str, lines: Iterable[tuple[str, str]]) -> None:
    print()
    print_wrapped((where, "bold cyan"), (f"  {parts}", "dim"))
    rows = ((label, styled(text, "bold" * (label in ("kernel", "loss")))) for label, text in lines)
    print_indented(table(rows, styles=("dim", ""), no_wrap=[0]))


def _lines(item: Any) -> Iterator[tuple[str, str]]:
    """Yields (label, text) of each line on one attention."""
    yield "kernel", item.kernel
    if item.kernel == "none":
        yield "runs", f"without one of the kernels, by the component {item.component} itself"
        return
    for kernel, reason in item.faster:
        yield f"not {kernel}", reason
    if item.run is None:
        yield "runs", "not known: a component reads values"
        return
    yield "runs", item.run.how
    yield "memory", _memory(item)


def _memory(item: Any) -> str:
    run, layers, parts = item.run, item.layers, []
    if run.tables:
        shared = f", once for all {layers} layers" if layers > 1 else ""
        parts.append(f"{format_bytes(run.tables)} of masks and biases{shared}")
    if run.kept:
        total = f", {format_bytes(run.kept * layers)} in all" if layers > 1 else ""
        parts.append(
            f"at least {format_bytes(run.kept)} of scores that each layer keeps for the"
            f" gradient{total}"
        )
    return "; ".join(parts) or "nothing that grows with the number of pairs"


def _loss_lines(item: Any) -> Iterator[tuple[str, str]]:
    """Yields (label, text) of each line on one loss."""
    yield "loss", loss_way(item)
    yield "memory", loss_memory(item)
