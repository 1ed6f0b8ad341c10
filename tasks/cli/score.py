"""Log-probabilities of texts under a run's model. One line each: nats, tokens, nats per token, and
the text.
"""

from collections.abc import Iterator
from typing import Any

from tasks import State
from tasks.cli.command import load_run, open_run, output
from xformer_kit.registry import config_error

SUMMARY = "log-probabilities of given texts, or of answers to sources"
EXAMPLES = """examples:
  xformer score outputs/decoder/2026-11-20_12-00-00 --input texts.txt
  xformer score RUN --input test.en --reference test.de --json"""
OPTIONS = {
    "run RUN": "a run's directory",
    "--input! FILE": "texts, or sources, one a line; - is stdin",
    "--reference FILE": "the answers to score, one a line (task=seq2seq)",
    "--checkpoint last|previous|best": (
        "which weights (best; another if that one is missing or damaged)"
    ),
    "--json": "print plain data",
}
ROWS = 32  # texts that are scored at once


def run(args: Any) -> int:
    from tasks.run.generation.translation import check_references, read_lines

    _, config = open_run(args.run, args.components)
    task, lines, sources = config["task"]["name"], read_lines(args.input, "--input"), None
    paired = {"seq2seq": True, "language_modeling": False}.get(task)
    if paired is not (args.reference is not None):
        way = "takes no --reference" if args.reference else "gives no likelihood"
        way = "needs --reference, the answers" if paired else way
        raise config_error("--input", f"a run of task={task} {way}")
    if paired:
        sources, lines = lines, check_references(lines, read_lines(args.reference, "--reference"))
    rows = [
        {
            "nats": nats + 0.0,
            "tokens": count,
            "nats_per_token": nats / count if count else 0.0,
            "text": text,
        }
        for text, nats, count in score_texts(load_run(args), lines, sources)
    ]
    return output(args, rows, _show, rows)


def _show(rows: list[State]) -> None:
    for row in rows:
        print("{nats:.4f}\t{tokens}\t{nats_per_token:.4f}\t{text}".format(**row))


def score_texts(
    run: Any, texts: list[str], sources: list[str] | None
) -> Iterator[tuple[str, float, int]]:
    """(text, -log p in nats, tokens that are predicted) of each text; of an answer with its end,
    given its source.
    """
    import torch

    from tasks.run.generation.decoding import batch_to_device, device_of
    from tasks.run.generation.translation import encode_lines
    from xformer_kit.generate import score

    objective, tokenizer = run.objective, run.objective.tokenizer
    if sources is None:
        examples = [{"tokens": ids} for ids in encode_lines(tokenizer, texts, "--input")]
    else:
        given_ids = encode_lines(objective.source_tokenizer, sources, "--input")
        answer_ids = encode_lines(tokenizer, texts, "--reference")
        examples = [objective.pair(a, b) for a, b in zip(given_ids, answer_ids, strict=True)]
    for start in range(0, len(examples), ROWS):
        batch = batch_to_device(device_of(run), examples[start : start + ROWS])
        said = batch["target"] if "target" in batch else batch["tokens"]
        source = batch.get("source")
        given = {} if source is None else {"source": source.ids, "source_real": source.real}
        each = score(run.model, said.ids, real=said.real, prefix=said.prefix, **given)
        nats = -each.double().sum(1)
        real = torch.ones_like(said.ids, dtype=torch.bool) if said.real is None else said.real
        real = real if said.prefix is None else real & ~said.prefix
        some = texts[start : start + ROWS]
        yield from zip(some, nats.tolist(), real[:, 1:].sum(1).tolist(), strict=True)
