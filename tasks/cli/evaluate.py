"""Evaluate a run on its validation text: loss in nats per token, perplexity and bits per byte over
the whole split, as at the end of the run. With the same weights the values are those of its
summary.json.
"""

from typing import Any

from tasks import Config, State
from tasks.cli.command import console, load_run, print_line, print_result, print_wrapped, table
from tasks.run.faults import flag, refuse, too_small
from xformer_kit.registry import config_error

SUMMARY = "validation loss, perplexity and bits per byte of a run"
EXAMPLES = """examples:
  xformer evaluate outputs/decoder/2026-11-20_12-00-00
  xformer evaluate outputs/decoder/2026-11-20_12-00-00 --checkpoint best --json
  xformer evaluate RUN --input test.en --reference test.de --beam 5"""
OPTIONS = {
    "run RUN": "a run's directory",
    "--checkpoint best|last|STEP": "which weights (last; another if that one is damaged)",
    "--batch-size N": "sequences at a time (as in the run)",
    "--input FILE": "sources to answer, one per line (task=seq2seq)",
    "--reference FILE": "the right answers, one per line",
    "--beam N": "beams of a search, 1: greedy (as in the run)",
    "--length-penalty A": "a beam's score is divided by length^A (1.0)",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    refuse(too_small(vars(args), batch_size=1))
    if args.input or args.reference:
        return _evaluate_answers(args)
    for name in ("beam", "length_penalty"):
        if getattr(args, name) is not None:
            raise config_error(
                flag(name), "is for answers to --input, with --reference", got="no --input"
            )
    run = load_run(args, default="last")
    metrics = evaluate(run, args.batch_size)
    note = None
    if limit := run.config["trainer"].get("limit_val_batches"):
        note = f"The run itself validated on less: trainer.limit_val_batches={limit}."
    data = {"run": str(run.path), "checkpoint": run.checkpoint} | metrics
    return print_result(args, data, _print, run, metrics, "", note)


def _evaluate_answers(args: Any) -> int:
    """Print the metrics of the answers to --input, compared with --reference."""
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
    run = load_run(args)  # the best checkpoint, as xformer generate
    if (task := run.config["task"]["name"]) != "seq2seq":
        raise config_error("--input", f"is for runs of task=seq2seq; this one has task={task}")
    options = {key: getattr(args, key) for key in ("beam", "length_penalty", "batch_size")}
    answers = [candidates[0][0] for candidates in translate(run, sources, **options)]
    metrics = translation_metrics(answers, references)
    data = {"run": str(run.path), "checkpoint": run.checkpoint, "examples": len(sources)} | metrics
    return print_result(args, data, _print, run, metrics, f", {len(sources):,} sources")


def _print(run: Any, metrics: State, suffix: str, note: str | None = None) -> None:
    from tasks.logging import summary

    print_line((str(run.path), "bold"), (f" {run.checkpoint}{suffix}", "dim"))
    console().print(
        table(summary.metric_rows(metrics, run.objective.loss_unit), styles=("", "bold"))
    )
    if note:
        print_wrapped((note, "dim"))


def evaluate(run: Any, batch_size: int | None = None) -> State:
    """Returns val/loss, val/perplexity, val/bits_per_byte and the metrics of predictions that the
    config names, and the number of tokens, or of texts if the loss is that of a text.

    Raises ConfigError if the data are not those of the run.
    """
    import torch

    from tasks.configured_metrics import create_metrics
    from tasks.logging import summary
    from tasks.metrics import SplitMetrics
    from tasks.run.generation.decoding import device_of
    from xformer_kit.data import prepare
    from xformer_kit.data.batch import map_tensors
    from xformer_kit.data.training_data import TrainingData, check_fingerprint, set_tokenizers
    from xformer_kit.inspect.memory import micro_batch, weights_dtype

    prepared, device = prepare(run.config), device_of(run)
    saved_fingerprint = (summary.read(run.path) or {}).get("data_fingerprint")
    check_fingerprint(saved_fingerprint, prepared.fingerprint)
    objective = set_tokenizers(run.objective, prepared)
    data = TrainingData(run.config, prepared, objective)
    model = run.model.to(weights_dtype(run.config))
    rows = batch_size or micro_batch(run.config)[0]
    split = SplitMetrics(
        data.bytes_per_token,
        data.part_bytes_per_token(),
        device,
        create_metrics(run.config, objective.num_classes(model), device),
    )
    batches = zip(data.valid_batches(rows), data.valid_loader(rows, device), strict=True)
    with torch.inference_mode(), _autocast(run.config, device):
        for (part, _), batch in batches:
            split.evaluate(objective, model, map_tensors(batch, lambda x: x.to(device)), part)
    metrics = {f"val/{name}": value for name, value in split.compute().items()}
    unit = objective.loss_unit.split()[-1]  # nats per token
    return metrics | {f"{unit}s": int(split.total.tokens)}


def _autocast(config: Config, device: Any) -> Any:
    """Returns the context of the run's precision."""
    from contextlib import nullcontext

    import torch

    from xformer_kit.inspect.memory import DTYPES, precision

    dtype, _, mode = precision(config).partition("-")
    return torch.autocast(device.type, dtype=DTYPES[dtype]) if mode == "mixed" else nullcontext()
