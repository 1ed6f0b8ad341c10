"""Print the negative log-likelihoods of texts under a run's model. One line each: nats, tokens,
nats per token, and the text.
"""

from collections.abc import Iterator
from typing import Any

from tasks import State
from tasks.cli.command import CHECKPOINT_OPTION, load_run, open_run, print_result
from xformer_kit.registry import config_error

SUMMARY = "negative log-likelihoods of given texts, or of answers to sources"
EXAMPLES = """examples:
  xformer score outputs/decoder/2026-11-20_12-00-00 --input texts.txt
  xformer score RUN --input test.en --reference test.de --json"""
OPTIONS = {
    "run RUN": "a run's directory, or latest",
    "--input! FILE": "texts, or sources, one per line; - reads stdin",
    "--reference FILE": "the answers to score, one per line (task=seq2seq)",
    **CHECKPOINT_OPTION,
    "--json": "print plain data",
}
BATCH_SIZE = 32  # texts


def run(args: Any) -> int:
    from tasks.generation.translation import check_references, read_lines

    _, config = open_run(args.run, args.components)
    task, lines, sources = config["task"]["name"], read_lines(args.input, "--input"), None
    has_sources = {"seq2seq": True, "language_modeling": False}.get(task)
    if has_sources is not (args.reference is not None):
        rule = "takes no --reference" if args.reference else "gives no likelihood"
        rule = "needs --reference, the answers" if has_sources else rule
        raise config_error("--input", f"a run of task={task} {rule}")
    if has_sources:
        sources, lines = lines, check_references(lines, read_lines(args.reference, "--reference"))
    scores = [
        {
            "nats": nats + 0.0,
            "tokens": count,
            "nats_per_token": nats / count if count else 0.0,
            "text": text,
        }
        for text, nats, count in score_texts(load_run(args), lines, sources)
    ]
    return print_result(args, scores, _print, scores)


def _print(scores: list[State]) -> None:
    for score in scores:
        print("{nats:.4f}\t{tokens}\t{nats_per_token:.4f}\t{text}".format(**score))


def score_texts(
    run: Any, texts: list[str], sources: list[str] | None
) -> Iterator[tuple[str, float, int]]:
    """Yields (text, -log p in nats, number of predicted tokens) per text. With sources, the texts
    are answers to them, and p includes the end token of the answer.
    """
    import torch

    from tasks.generation.decoding import batch_to_device, device_of
    from tasks.generation.translation import encode_lines
    from xformer_kit.generate import score

    objective, tokenizer = run.objective, run.objective.tokenizer
    if sources is None:
        encoded = encode_lines(tokenizer, texts, "--input")
        examples = [{"tokens": tokenizer.whole(ids)} for ids in encoded]
    else:
        source_ids = encode_lines(objective.source_tokenizer, sources, "--input")
        answer_ids = encode_lines(tokenizer, texts, "--reference")
        examples = list(map(objective.pair, source_ids, answer_ids))
    for start in range(0, len(examples), BATCH_SIZE):
        batch = batch_to_device(device_of(run), examples[start : start + BATCH_SIZE])
        tokens = batch["target"] if "target" in batch else batch["tokens"]
        source = batch.get("source")
        given = {} if source is None else {"source": source.ids, "source_real": source.real}
        log_p = score(run.model, tokens.ids, real=tokens.real, prefix=tokens.prefix, **given)
        nats = -log_p.double().sum(1)
        real = torch.ones_like(tokens.ids, dtype=torch.bool) if tokens.real is None else tokens.real
        predicted = real if tokens.prefix is None else real & ~tokens.prefix
        counts = predicted[:, 1:].sum(1)
        some_texts = texts[start : start + BATCH_SIZE]
        yield from zip(some_texts, nats.tolist(), counts.tolist(), strict=True)
