"""The report of a study by the scores of its runs on tasks of lm-eval."""

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tasks.cli.command import load_run, print_line, print_result
from tasks.process.command_faults import refuse, too_small
from xformer_kit.registry import config_error
from xformer_kit.study.results import Results

CHECKPOINT = "last"


def report_tasks(args: Any, directory: Path) -> int:
    """Evaluates the finished runs of a study that have no scores yet, and writes a report for each
    task into STUDY/evaluations/TASK.
    """
    from tasks.evaluation import stored
    from tasks.study.collect import results
    from tasks.study.report import show, write_files
    from xformer_kit.study import stop
    from xformer_kit.study.report.content import content

    refuse(too_small(vars(args), limit=1, few_shot=0))
    found = stop.apply_stopping_rule(results(directory))
    if found.study["design"]["name"] == "ladder":
        rule = "is for studies that compare variants, not for the laws of a ladder"
        raise config_error("--tasks", rule, fix="Leave it out.")
    if found.study.get("command") is not None:
        rule = "is for runs that were trained here, not for those of study.command"
        raise config_error("--tasks", rule, fix="Leave it out.")
    if not any(one.status == "finished" for one in found.outcomes):
        raise config_error("--tasks", "no run of the study has finished", fix="Finish it first.")
    answers = {}
    with redirect_stdout(sys.stderr if args.json else sys.stdout):
        for name in _evaluate(args, found):
            folder = directory / stored.FOLDER / name.replace("/", "_")
            scored = stored.scored(found, name, args.metric)
            values = content(scored)
            page = write_files(folder, scored, values)
            show(page, [], folder / "report.html")
            answers[name] = {
                "metric": values.metric.name,
                "answer": values.sentence,
                "folder": str(folder),
            }
    data = {"folder": str(directory), "tasks": answers}
    return print_result(args, data, print_line, "")


def _evaluate(args: Any, found: Results) -> list[str]:
    """Evaluates the runs without scores of these items, and returns the names of the tasks."""
    from tasks.evaluation import stored
    from tasks.evaluation.harness import digest, evaluate_run, harness_faults, load_tasks

    names = [name for name in args.tasks.split(",") if name]
    if not names:
        raise config_error("--tasks", "must name at least one task", got=repr(args.tasks))
    tasks: dict[str, Any] = {}
    every = [one for one in found.outcomes if one.status == "finished"]
    for i, one in enumerate(every):
        given = argparse.Namespace(
            run=one.directory, checkpoint=CHECKPOINT, components=args.components
        )
        run = load_run(given)
        if not tasks:
            refuse(harness_faults(run.config))
            tasks = load_tasks(names, args.few_shot)
            asked = f"{digest(names, tasks)} {args.limit} {args.few_shot}"
        known = [*tasks["tasks"], *tasks["groups"]]
        if all(stored.is_of(run.path, name, asked) for name in known):
            continue
        print(f"run {i + 1} of {len(every)}: {one.directory}", file=sys.stderr)
        for result in evaluate_run(run, tasks, args.limit)[0].values():
            stored.store(run.path, result | {"asked": asked})
    return known
