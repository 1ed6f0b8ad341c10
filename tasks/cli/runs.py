"""List the runs below outputs/, here or in another directory, by the time at which they began, the
newest last: directory, task, validation loss, steps and state. A run of a study has its variant and
seed next to it. Each directory, also without outputs/ before it, and `latest` are names of a run in
all commands.
"""

from pathlib import Path
from typing import Any

from tasks import State
from tasks.cli.command import console, print_json, print_line, table
from xformer_kit.metrics import VAL_LOSS

SHOWN = 20  # runs, without --all
SUMMARY = "the runs below outputs/: directory, task, loss, steps, state"
EXAMPLES = """examples:
  xformer runs
  xformer runs --all --json
  xformer describe latest"""
OPTIONS = {
    "directory? DIRECTORY": "where outputs/ is, or outputs/ itself (the current directory)",
    "--all": f"all runs, not only the newest {SHOWN}",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    from xformer_kit.config.saved.run_directories import OUTPUTS, saved_runs
    from xformer_kit.registry import config_error
    from xformer_kit.text.command_lines import program
    from xformer_kit.text.user_path import user_path

    outputs = Path(OUTPUTS)
    if args.directory is not None:
        given = user_path(args.directory)
        if not given.is_dir():
            raise config_error(args.directory, "is no directory", fix="Name one that has outputs/.")
        outputs = given / OUTPUTS if (given / OUTPUTS).is_dir() else given
    paths = saved_runs(outputs)
    shown = paths if args.all else paths[-SHOWN:]
    of_studies = _study_runs(outputs / "studies") if shown else {}
    rows = [_facts(path) | {"study": of_studies.get(path.resolve())} for path in shown]
    if args.json:
        print_json(rows)
    elif not rows:
        print_line(f"There is no run below {outputs}: {program()} begins one.")
    else:
        _print(rows)
        if len(shown) < len(paths):
            print_line((f"{len(paths) - len(shown)} older runs: xformer runs --all", "dim"))
    return 0


def _facts(path: Path) -> State:
    """Returns what the table has of a run; None for what is not known."""
    from tasks.study import state
    from xformer_kit.config import read_config
    from xformer_kit.data.run_length import known_steps
    from xformer_kit.registry import ConfigError

    end = state.of(path)
    facts = end.facts
    try:
        config = {} if facts else read_config(path)
        task, steps = config["task"]["name"], known_steps(config)
    except (ConfigError, KeyError, TypeError):  # finished, or a damaged config
        task, steps = facts.get("task"), facts.get("steps")
    return {
        "run": str(path),
        "task": task,
        "loss": facts.get(VAL_LOSS),
        "step": end.step,
        "steps": steps,
        "state": end.status,
    }


def _study_runs(studies: Path) -> dict[Path, str]:
    """Returns {directory: study, variant and seed} of the runs of studies."""
    from tasks.study.saved_plan import PLAN, read_plan
    from xformer_kit.registry import ConfigError
    from xformer_kit.study.results import title

    found = {}
    for file in studies.glob(f"**/{PLAN}"):
        try:
            plan = read_plan(file.parent)
        except ConfigError:  # reported by xformer status
            continue
        for one in plan["runs"]:
            name, variant = file.parent.relative_to(studies), plan["variants"][one["variant"]]
            directory = (file.parent / plan["pool"] / one["key"]).resolve()
            found[directory] = f"{name}: {title(variant)}, seed {one['seed']}"
    return found


def _print(rows: list[State]) -> None:
    from xformer_kit.study.results import STATUS_NAMES

    cells = []
    for row in rows:
        step, steps, status = row["step"], row["steps"], row["state"]
        count = "" if step is None else f"{step:,}"
        count += f" of {steps:,}" if steps and step != steps else ""
        loss = "" if row["loss"] is None else f"{row['loss']:.4f}"
        name, study = STATUS_NAMES.get(status, status), row["study"] or ""
        cells.append((row["run"], row["task"] or "", loss, count.strip(), name, study))
    headings = "run", "task", "loss", "steps", "state", "study"
    console().print(table(cells, headings, right=(2, 3), no_wrap=(0,)))
