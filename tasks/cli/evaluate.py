"""Evaluate a run on its validation text: loss in nats per token, perplexity and bits per byte over
the whole split, as at the end of the run. With the same weights the values are those of its
summary.json. With --input they are those of another text, which is encoded with the run's
tokenizer and cut into windows like the validation text.
"""

from typing import Any

from tasks import Config, State
from tasks.cli.command import (
    console,
    load_run,
    open_run,
    print_line,
    print_result,
    print_wrapped,
    table,
)
from tasks.process.command_faults import faults_at_flags, flag, refuse, too_small
from xformer_kit.registry import Fault, Faults, config_error

SUMMARY = "loss, perplexity and bits per byte of a run, on its validation text or another one"
EXAMPLES = """examples:
  xformer evaluate outputs/decoder/2026-11-20_12-00-00
  xformer evaluate outputs/decoder/2026-11-20_12-00-00 --checkpoint best --json
  xformer evaluate RUN --input book.txt
  xformer evaluate RUN --input documents.jsonl --field body
  xformer evaluate RUN --input test.en --reference test.de --beam 5"""
OPTIONS = {
    "run RUN": "a run's directory, or latest",
    "--checkpoint best|last|STEP": "which weights (last; another if that one is damaged)",
    "--batch-size N": "sequences at a time (as in the run)",
    "--input FILE": (
        "a text: files such as book.txt, 'books/*.txt.gz', docs.jsonl or table.csv, - reads stdin;"
        " of a run of task=seq2seq: sources to answer, one per line"
    ),
    "--field NAME": "the field or column of --input that is the text (data.text of the run)",
    "--reference FILE": "the right answers, one per line (task=seq2seq)",
    "--beam N": "beams of a search, 1: greedy (as in the run)",
    "--length-penalty A": "a beam's score is divided by length^A (1.0)",
    "--json": "print plain data",
}
ANSWER_OPTIONS = ("reference", "beam", "length_penalty")

# Count of `text_likelihood` -> the sentence after it.
NOTES = {
    "unknown": "tokens are unknown words, which the tokenizer does not tell apart",
    "characters_dropped": "characters are dropped, for which the tokenizer has no token",
}


def run(args: Any) -> int:
    _, config = open_run(args.run, args.components)
    refuse(_option_faults(args, config))
    if args.input is None:
        return _evaluate_validation(args)
    if config["task"]["name"] == "seq2seq":
        return _evaluate_answers(args)
    return _evaluate_text(args, config)


def _option_faults(args: Any, config: Config) -> Faults:
    """Yields the faults of numbers, and of options that have no effect on a run of this task and
    data.
    """
    from tasks.cli.given_text import TEXT, form_of
    from xformer_kit.objective import OBJECTIVES

    yield from too_small(vars(args), batch_size=1)
    task = config["task"]["name"]
    used: tuple[str, ...] = ()
    where = f"--input {args.input} of a run of task={task}"
    if args.input is None:
        where = "the validation split, without --input FILE"
    elif task == "seq2seq":
        used = ANSWER_OPTIONS
        if args.reference is None:
            rule = "holds sources, whose answers are compared with --reference"
            yield Fault("--input", rule, got="no --reference", fix="Add --reference FILE.")
    elif "text" not in OBJECTIVES[task].reads:
        rule = f"is for a text, which a run of task={task} does not read"
        yield Fault("--input", rule, fix="Leave it out for the run's own data.")
    elif form_of(args.input, config["data"]) != TEXT:
        used = ("field",)
    for name in (*ANSWER_OPTIONS, "field"):
        if getattr(args, name) is not None and name not in used:
            yield Fault(flag(name), f"has no effect on {where}", fix="Leave it out.")


def _evaluate_validation(args: Any) -> int:
    """Print the metrics of the run's validation split."""
    run = load_run(args, default="last")
    if not run.data_fingerprint:
        rule = "is needed for an imported model, which has no text of its own"
        raise config_error("--input", rule, fix="Add --input FILE.")
    from tasks.cli.likelihood import validation_likelihood

    metrics = validation_likelihood(run, args.batch_size)
    data = {"run": str(run.path), "checkpoint": run.checkpoint} | metrics
    return print_result(args, data, _print, run, metrics, "")


def _evaluate_text(args: Any, config: Config) -> int:
    """Print the likelihood of the text --input."""
    from tasks.cli.given_text import TEXT, form_of
    from tasks.cli.likelihood import text_likelihood

    run = load_run(args, default="last")
    field = args.field or config["data"].get("text") or "text"
    metrics = text_likelihood(run, args.input, field, args.batch_size)
    notes = [f"{metrics[key]:,} {text}." for key, text in NOTES.items() if metrics.get(key)]
    data = {"run": str(run.path), "checkpoint": run.checkpoint, "input": args.input} | metrics
    name = "stdin" if args.input == "-" else args.input
    if (form := form_of(args.input, config["data"])) != TEXT:
        data["field"] = field
        name += f" read as {form}, field '{field}'"
    return print_result(args, data, _print, run, metrics, f", {name}", " ".join(notes))


def _evaluate_answers(args: Any) -> int:
    """Print the metrics of the answers to --input, compared with --reference."""
    from tasks.generation.translation import check_references, read_lines, translate
    from tasks.modules.text_metrics import translation_metrics

    sources = read_lines(args.input, "--input")
    references = check_references(sources, read_lines(args.reference, "--reference"))
    run = load_run(args)  # the best checkpoint, as xformer generate
    options = {key: getattr(args, key) for key in ("beam", "length_penalty", "batch_size")}
    with faults_at_flags(vars(args)):
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
