"""Evaluate a run on its validation text: loss in nats per token, perplexity and bits per byte over
the whole split, as at the end of the run. With the same weights the figures are those of its
summary.json.
"""

from typing import Any

from tasks import Config, State
from tasks.cli.command import console, grid, load_run, output, say, say_wrapped
from tasks.run.faults import flag, refuse, too_small
from xformer_kit.registry import config_error

SUMMARY = "validation loss, perplexity and bits per byte of a run"
EXAMPLES = """examples:
  xformer evaluate outputs/decoder/2026-11-20_12-00-00
  xformer evaluate outputs/decoder/2026-11-20_12-00-00 --checkpoint best --json
  xformer evaluate RUN --input test.en --reference test.de --beam 5"""
OPTIONS = {
    "run RUN": "a run's directory",
    "--checkpoint last|previous|best": "which weights (last; another if that one is damaged)",
    "--batch-size N": "sequences at a time (as in the run)",
    "--input FILE": "sources to answer, one a line (task=seq2seq)",
    "--reference FILE": "the right answers, one a line",
    "--beam N": "beams of a search, 1: greedy (as in the run)",
    "--length-penalty A": "a beam's score is divided by length^A (1.0)",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    refuse(too_small(vars(args), batch_size=1))
    if args.input or args.reference:
        return _answered(args)
    for name in ("beam", "length_penalty"):
        if getattr(args, name) is not None:
            raise config_error(
                flag(name), "is for answers to --input, with --reference", got="no --input"
            )
    run = load_run(args, first="last")
    found = evaluate(run, args.batch_size)
    figures = {"run": str(run.path), "checkpoint": run.checkpoint} | found
    note = None
    if limit := run.config["trainer"].get("limit_val_batches"):
        note = f"The run itself validated on less: trainer.limit_val_batches={limit}."
    return output(args, figures, _show, figures, found, run.checkpoint, note)


def _answered(args: Any) -> int:
    """Answers to a file of sources against a file of references."""
    from tasks.metrics import translation_metrics
    from tasks.run.generation.translation import check_references, read_lines, translate

    if not (args.input and args.reference):
        raise config_error(
            "--input, --reference",
            "both are needed, sources and right answers",
            got="one of them",
        )
    sources = read_lines(args.input, "--input")
    references = check_references(sources, read_lines(args.reference, "--reference"))
    run = load_run(args)  # as xformer generate
    if (task := run.config["task"]["name"]) != "seq2seq":
        raise config_error("--input", f"is for runs of task=seq2seq; this one has task={task}")
    wanted = {key: getattr(args, key) for key in ("beam", "length_penalty", "batch_size")}
    answers = [row[0][0] for row in translate(run, sources, **wanted)]
    figures = translation_metrics(answers, references)
    found = {"run": str(run.path), "checkpoint": run.checkpoint, "examples": len(sources)} | figures
    what = f"{run.checkpoint}, {len(sources):,} sources"
    return output(args, found, _show, found, figures, what)


def _show(found: State, figures: State, what: str, note: str | None = None) -> None:
    from tasks.logging import summary

    screen = console()
    say(screen, (found["run"], "bold"), (f" {what}", "dim"))
    screen.print(grid(summary.figures(figures), "", "bold"))
    if note:
        say_wrapped(screen, (note, "dim"))


def evaluate(run: Any, rows: int | None = None) -> State:
    """val/loss, val/perplexity, val/bits_per_byte of a text, and the tokens that they are over.

    Raises ConfigError where the text is not the one of the run.
    """
    import torch

    from tasks import metrics
    from tasks.logging import summary
    from tasks.run.generation.decoding import device_of
    from xformer_kit.data import prepare
    from xformer_kit.data.batch import map_tensors
    from xformer_kit.data.training_data import TrainingData, attach_tokenizers, check_fingerprint
    from xformer_kit.inspect.memory import micro_batch, weights_dtype

    prepared, device = prepare(run.config), device_of(run)
    before = (summary.read(run.path) or {}).get("data_fingerprint")
    check_fingerprint(before, prepared.fingerprint)
    objective = attach_tokenizers(run.objective, prepared)
    data = TrainingData(run.config, prepared, objective)
    model = run.model.to(weights_dtype(run.config))
    rows = rows or micro_batch(run.config)[0]
    likelihood = metrics.SplitLikelihood(data.bytes_per_token, data.part_bytes_per_token(), device)
    batches = zip(data.valid_batches(rows), data.valid_loader(rows, device), strict=True)
    with torch.inference_mode(), _precision(run.config, device):
        for (component, _), batch in batches:
            loss, count, _ = objective.loss(model, map_tensors(batch, lambda x: x.to(device)))
            likelihood.update(component, loss, count)
    tokens = int(likelihood.total.tokens)
    return {f"val/{n}": value for n, value in likelihood.compute().items()} | {"tokens": tokens}


def _precision(config: Config, device: Any) -> Any:
    """Autocast as in the run."""
    from contextlib import nullcontext

    import torch

    from xformer_kit.inspect.memory import DTYPES, precision

    kind, _, how = precision(config).partition("-")
    return torch.autocast(device.type, dtype=DTYPES[kind]) if how == "mixed" else nullcontext()
