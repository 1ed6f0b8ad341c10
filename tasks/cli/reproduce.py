"""Print the command line that trains a run again from the start, with one more for each time that
it was prolonged, and list what has changed since: config, data, the code of its components,
versions, device. With --run it is trained again, in a directory of its own, and the metrics of both
runs are compared. Exit code 0: nothing has changed, and with --run all metrics are equal to the
last digit; 1: something has.
"""

from typing import Any

from tasks import State
from tasks.cli.command import open_run, print_line, print_result
from xformer_kit.registry import config_error
from xformer_kit.text.command_lines import train

SUMMARY = (
    "the command line of a run, what has changed since, and whether its metrics are reproduced"
)
REQUIRED_FACTS = ("config_hash", "data_fingerprint", "versions", "components", "code", "devices")
EXAMPLES = """examples:
  xformer reproduce outputs/decoder/2026-11-20_12-00-00
  xformer reproduce outputs/runs/2f84664c4dc75a26 --run
  xformer reproduce outputs/decoder/2026-11-20_12-00-00 --components my_components.py --json"""
OPTIONS = {
    "path RUN": "a run's directory, also one of a study, or latest",
    "--run": "train it again and compare the metrics",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    from tasks.cli import reproduction
    from tasks.logging import summary

    path, config = open_run(args.path, args.components)
    if (facts := summary.read(path)) is None:
        summary.check_summary(path, args.components)
        rule = "is not finished; it has no summary.json to compare with"
        raise config_error(args.path, rule, fix=summary.continue_hint(args.path, args.components))
    if missing := [name for name in REQUIRED_FACTS if name not in facts]:
        rule = f"has no {', '.join(missing)}"
        raise config_error(path / "summary.json", rule, fix="Bring a copy of it back.")
    directory = reproduction.unused_directory(path)
    lines = reproduction.train_lines(config, facts, args.components, directory)
    result: State = {
        "command": " && ".join(train(*arguments) for arguments in lines),
        "differences": list(reproduction.differences(config, facts, args.components)),
        "notes": list(reproduction.notes(config, facts)),
    }
    if not args.run:
        print_result(args, result, _print_differences, result)
        return int(bool(result["differences"]))
    if not args.json:
        _print_differences(result)
    for arguments in lines:
        if code := reproduction.train(arguments, args.json):
            return code
    then = reproduction.compared_values(facts)
    now = reproduction.compared_values(summary.read(directory) or {"steps": None})
    result |= {
        "run": str(directory),
        "figures": {n: {"then": then.get(n), "now": now.get(n)} for n in then | now},
    }
    return int(then != now) | print_result(args, result, _print_metrics, result)


def _print_differences(result: State) -> None:
    print_line(("  $ ", "dim"), (result["command"], "bold"))
    print()
    for sentence in result["differences"]:
        print_line((sentence, "yellow"))
    if not result["differences"]:
        print_line("Config, data, code of the components, versions and device are unchanged.")
    for sentence in result["notes"]:
        print_line((sentence, "dim"))


def _print_metrics(result: State) -> None:
    from tasks.cli.reproduction import compare_values

    print_line((result["run"], "bold"))
    for name, values in result["figures"].items():
        style = "" if values["then"] == values["now"] else "yellow"
        print_line(f"{name}: ", (compare_values(**values), style))
