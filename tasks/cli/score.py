"""Log-probabilities of texts under a run's model. One line each: nats, tokens, nats per token, and
the text.
"""

from typing import Any

from tasks.cli.command import load_run, on_device, open_run, print_json
from tasks.refusal import refusal
from tasks.types import Config

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
    from tasks.generation.translation import partners, read_lines

    _, config = open_run(args.run, args.parts)
    task, lines = config["task"]["name"], read_lines(args.input, "--input")
    pairs = task == "seq2seq"
    if pairs != (args.reference is not None) or task not in ("seq2seq", "language_modeling"):
        way = (
            "needs --reference, the answers"
            if pairs
            else "takes no --reference"
            if args.reference
            else "gives no likelihood"
        )
        raise refusal("--input", f"a run of task={task} {way}")
    answers = partners(lines, read_lines(args.reference, "--reference")) if pairs else lines
    model, config, *_ = load_run(args.run, args.parts, args.checkpoint, first="best")
    sources = lines if pairs else None
    found = [
        {
            "nats": nats + 0.0,
            "tokens": count,
            "nats_per_token": nats / count if count else 0.0,
            "text": text,
        }
        for (nats, count), text in zip(
            scored(on_device(model), config, answers, sources), answers, strict=True
        )
    ]
    if args.json:
        print_json(found)
    else:
        for row in found:
            print(f"{row['nats']:.4f}\t{row['tokens']}\t{row['nats_per_token']:.4f}\t{row['text']}")
    return 0


def scored(
    model: Any, config: Config, texts: list[str], sources: list[str] | None
) -> list[tuple[float, int]]:
    """(-log p in nats, tokens that are predicted) of each text; of an answer with its end, given
    its source.
    """
    import torch

    from tasks.generation.translation import encoded_lines, objective_of_run
    from xformer_kit.data.batch import collate, mapped
    from xformer_kit.generate import score

    objective = objective_of_run(model, config)
    if sources is None:
        examples = [{"tokens": ids} for ids in encoded_lines(model.tokenizer, texts, "--input")]
    else:
        given_ids = encoded_lines(objective.source_tokenizer, sources, "--input")
        answer_ids = encoded_lines(model.tokenizer, texts, "--reference")
        examples = [objective.pair(a, b) for a, b in zip(given_ids, answer_ids, strict=True)]
    device, found = next(model.parameters()).device, []
    for start in range(0, len(examples), ROWS):
        batch: Any = mapped(collate(examples[start : start + ROWS]), lambda x: x.to(device))
        said = batch["target"] if "target" in batch else batch["tokens"]
        given = (
            {}
            if "source" not in batch
            else {"source": batch["source"].ids, "source_real": batch["source"].real}
        )
        nats = -score(model, said.ids, real=said.real, prefix=said.prefix, **given).double().sum(1)
        asked = torch.ones_like(said.ids, dtype=torch.bool) if said.real is None else said.real
        asked = asked if said.prefix is None else asked & ~said.prefix
        counts = asked[:, 1:].sum(1)
        found += list(zip(nats.tolist(), counts.tolist(), strict=True))
    return found
