"""Evaluate a run on its validation text: loss in nats per token, perplexity and bits per byte over
the whole split, as at the end of the run. With the same weights the values are those of its
summary.json. With --input they are those of another text, which is encoded with the run's
tokenizer and cut into windows like the validation text.

With --tasks a language model answers tasks of the library lm-eval, by their names or as local task
files; the scores of all items are written to RUN/evaluations, and `xformer compare RUN RUN --tasks
NAME` compares two runs item by item.
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

SUMMARY = (
    "loss, perplexity and bits per byte of a run, on its validation text or another one; or scores"
    " on tasks of lm-eval"
)
EXAMPLES = """examples:
  xformer evaluate outputs/decoder/2026-11-20_12-00-00
  xformer evaluate outputs/decoder/2026-11-20_12-00-00 --checkpoint best --json
  xformer evaluate RUN --input book.txt
  xformer evaluate RUN --input documents.jsonl --field body
  xformer evaluate RUN --input test.en --reference test.de --beam 5
  xformer evaluate RUN --tasks hellaswag,arc_easy --limit 200
  xformer evaluate RUN --tasks my_task.yaml --few-shot 5 --json"""
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
    "--tasks NAME,FILE": (
        "tasks of lm-eval by name, task files (YAML) or directories of them, with commas between"
        ' them (needs pip install "xformer_kit[eval]")'
    ),
    "--limit N": "only the first N items of each task",
    "--few-shot N": "answered examples in front of each question (as in the task)",
    "--max-len N": (
        "tokens of a task's text that are read, its last ones (model.max_len of the run, or"
        " data.seq_len)"
    ),
    "--json": "print plain data",
}
ANSWER_OPTIONS = ("reference", "beam", "length_penalty")
TASK_OPTIONS = ("limit", "few_shot", "max_len")

# Count of `text_likelihood` -> the sentence after it.
NOTES = {
    "unknown": "tokens are unknown words, which the tokenizer does not tell apart",
    "characters_dropped": "characters are dropped, for which the tokenizer has no token",
}


def run(args: Any) -> int:
    _, config = open_run(args.run, args.components)
    refuse(_option_faults(args, config))
    if args.tasks is not None:
        return _evaluate_tasks(args, config)
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

    yield from too_small(vars(args), batch_size=1, limit=1, few_shot=0, max_len=2)
    task = config["task"]["name"]
    used: tuple[str, ...] = ()
    where = f"--input {args.input} of a run of task={task}"
    if args.tasks is not None:
        used, where = TASK_OPTIONS, "--tasks"
        if args.input is not None:
            yield Fault("--input", "is another text than that of --tasks", fix="Leave one out.")
    elif args.input is None:
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
    for name in (*ANSWER_OPTIONS, "field", *TASK_OPTIONS):
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


def _evaluate_tasks(args: Any, config: Config) -> int:
    """Print the metrics of tasks, and store them with the scores of all items."""
    from tasks.evaluation import stored
    from tasks.evaluation.harness import evaluate_run, harness_faults, load_tasks, task_names

    refuse(harness_faults(config))
    tasks = load_tasks(task_names(args.tasks), args.few_shot)
    run = load_run(args, default="last")
    results, common, unknown = evaluate_run(
        run, tasks, args.limit, max_len=args.max_len, rows=args.batch_size
    )
    files = [str(stored.store(run.path, result)) for result in results.values()]
    own = ("task", "items", *common)
    plain = {
        name: {key: value for key, value in result.items() if key not in own}
        for name, result in results.items()
    }
    data = common | {"tasks": plain, "files": files, "unknown": unknown}
    return print_result(args, data, _print_tasks, run, results, data)


def _print_tasks(run: Any, results: dict[str, State], data: State) -> None:
    print_line((str(run.path), "bold"), (f" {run.checkpoint}", "dim"))
    number = lambda x: "-" if x is None else f"{x:.4f}" if abs(x) < 1000 else f"{x:.6g}"
    rows = [
        (name, metric, number(found["value"]), number(found["stderr"]), f"{result['count']:,}")
        for name, result in results.items()
        for metric, found in result["metrics"].items()
    ]
    headings = ("task", "metric", "value", "standard error", "items")
    console().print(table(rows, headings, styles=("", "", "bold"), right=(2, 3, 4)))
    print_wrapped((f"Scores of each item: {', '.join(data['files'])}", "dim"))
    if data["unknown"]:
        print_wrapped((f"{data['unknown']:,} {NOTES['unknown']}.", "yellow"))


def _print(run: Any, metrics: State, suffix: str, note: str | None = None) -> None:
    from tasks.logging import summary

    print_line((str(run.path), "bold"), (f" {run.checkpoint}{suffix}", "dim"))
    console().print(
        table(summary.metric_rows(metrics, run.objective.loss_unit), styles=("", "bold"))
    )
    if note:
        print_wrapped((note, "dim"))
