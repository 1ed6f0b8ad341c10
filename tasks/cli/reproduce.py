"""Print the command line that trains a run again from the start, and list what has changed since:
config, data, the code of its components, versions, device. With --run it is trained again, in a
directory of its own, and its figures are compared with the old ones. Exit code 0: nothing has
changed, and with --run every figure is equal to the last digit; 1: something has.
"""

from typing import Any

from tasks import State
from tasks.cli.command import console, open_run, output, print_json, say
from xformer_kit.registry import config_error

SUMMARY = "the command line of a run, what has changed since, and whether the same comes of it"
NEEDED = ("config_hash", "data_fingerprint", "versions", "components", "devices")
EXAMPLES = """examples:
  xformer reproduce outputs/decoder/2026-11-20_12-00-00
  xformer reproduce outputs/runs/2f84664c4dc75a26 --run
  xformer reproduce outputs/decoder/2026-11-20_12-00-00 --components my_components.py --json"""
OPTIONS = {
    "path RUN": "a run's directory, also one of a study",
    "--run": "train it again and compare the figures",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    import shlex

    from tasks.cli.reproduction import differences, figures, free, train, words
    from tasks.logging import summary
    from xformer_kit.config import ensure

    path, config = open_run(args.path, args.components)
    if (facts := summary.read(path)) is None:
        summary.check_summary(path, args.components)
        rule = "is not finished; it has no summary.json to compare with"
        raise config_error(args.path, rule, fix=summary.continue_hint(args.path, args.components))
    if missing := [name for name in NEEDED if name not in facts]:
        rule = f"has no {', '.join(missing)}"
        raise config_error(path / "summary.json", rule, fix="Bring a copy of it back.")
    ensure(config, data=False)
    again = free(path)
    given = words(config, args.components, again)
    found: State = {
        "command": shlex.join(["python", "train.py", *given]),
        "differences": list(differences(config, facts, args.components)),
    }
    if not args.json:
        _show(found)
    if not args.run:
        if args.json:
            print_json(found)
        return int(bool(found["differences"]))
    if code := train(given, args.json):
        return code
    then, now = figures(facts), figures(summary.read(again) or {"steps": None})
    found |= {
        "run": str(again),
        "figures": {n: {"then": then.get(n), "now": now.get(n)} for n in then | now},
    }
    return int(then != now) | output(args, found, _compare, found)


def _show(found: State) -> None:
    screen = console()
    say(screen, ("  $ ", "dim"), (found["command"], "bold"))
    screen.print()
    for sentence in found["differences"]:
        say(screen, (sentence, "yellow"))
    if not found["differences"]:
        say(screen, "Config, data, code of the components, versions and device are as they were.")


def _compare(found: State) -> None:
    from tasks.cli.reproduction import verdict

    screen = console()
    say(screen, (found["run"], "bold"))
    for name, figure in found["figures"].items():
        same = figure["then"] == figure["now"]
        say(screen, f"{name}: ", (verdict(**figure), "" if same else "yellow"))
