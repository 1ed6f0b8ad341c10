"""The report of a study by the scores of its runs on tasks of lm-eval."""

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tasks.cli.command import load_run, open_run, print_line, print_result
from tasks.process.command_faults import refuse, too_small
from xformer_kit.registry import config_error
from xformer_kit.study.results import Results


def report_tasks(args: Any, directory: Path) -> int:
    """Evaluates the finished runs of a study that have no scores yet, and writes a report for each
    task into STUDY/evaluations/TASK.
    """
    from tasks.evaluation import stored
    from tasks.study.collect import results
    from tasks.study.report import has_packages, write_content
    from xformer_kit.study import stop

    refuse(too_small(vars(args), limit=1, few_shot=0))
    found = results(directory)
    _check(found)
    if not has_packages():
        return 1
    found = stop.apply_stopping_rule(found)
    answers = {}
    with redirect_stdout(sys.stderr if args.json else sys.stdout):
        for name in _evaluate(args, found):
            folder = stored.result_file(directory, name).with_suffix("")
            values = write_content(folder, stored.scored(found, name, args.metric))
            answers[name] = {
                "metric": values.metric.name,
                "answer": values.sentence,
                "folder": str(folder),
            }
    data = {"folder": str(directory), "tasks": answers}
    return print_result(args, data, print_line, "")


def _check(found: Results) -> None:
    """Raises ConfigError for a study whose runs have no scores that compare."""
    rule, fix = "", "Leave it out."
    if found.study["design"]["name"] == "ladder":
        rule = "is for studies that compare variants, not for the laws of a ladder"
    elif found.study.get("command") is not None:
        rule = "is for runs that were trained here, not for those of study.command"
    elif not any(one.status == "finished" for one in found.outcomes):
        rule, fix = "no run of the study has finished", "Finish it first."
    if rule:
        raise config_error("--tasks", rule, fix=fix)


def _evaluate(args: Any, found: Results) -> list[str]:
    """Evaluates the runs without scores of these items, and returns the names of the tasks."""
    from tasks.evaluation import stored
    from tasks.evaluation.harness import (
        digest,
        evaluate_run,
        harness_faults,
        load_tasks,
        task_names,
    )

    every = [one for one in found.outcomes if one.status == "finished"]
    refuse(harness_faults(open_run(every[0].directory, args.components)[1]))
    names = task_names(args.tasks)
    tasks = load_tasks(names, args.few_shot)
    known, asked = [*tasks["tasks"], *tasks["groups"]], digest(names, tasks)
    for i, one in enumerate(every):
        # a run that was prolonged has other weights
        own = f"{asked} {args.limit} {args.few_shot} {one.facts.get('steps')}"
        if all(stored.is_of(Path(one.directory), name, own) for name in known):
            continue
        print(f"run {i + 1} of {len(every)}: {one.directory}", file=sys.stderr)
        given = {"run": one.directory, "checkpoint": None, "components": args.components}
        run = load_run(argparse.Namespace(**given), default="last")
        refuse(harness_faults(run.config))
        for result in evaluate_run(run, tasks, args.limit)[0].values():
            stored.store(run.path, result | {"asked": own})
    return known
