"""Print the command line that trains a run again from nothing, and say what is not as it was:
config, data, the code of its parts, versions, device. With --run it is trained again, in a
directory of its own, and its figures are compared with the old ones. Exit code 0: all is as it was,
and with --run every figure is equal to the last digit; 1: something is not.
"""

from typing import Any

from tasks.cli.command import console, open_run, print_json

SUMMARY = "the command line of a run, what has changed since, and whether the same comes of it"
NEEDED = ("config_hash", "data_fingerprint", "versions", "parts", "devices")
EXAMPLES = """examples:
  xformer reproduce outputs/decoder/2026-11-20_12-00-00
  xformer reproduce outputs/runs/2f84664c4dc75a26 --run
  xformer reproduce outputs/decoder/2026-11-20_12-00-00 --parts my_parts.py --json"""


def options(parser: Any) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's directory, also one of a study")
    parser.add_argument(
        "--run", dest="train", action="store_true", help="train it again and compare the figures"
    )
    parser.add_argument("--json", action="store_true", help="print plain data")


def run(args: Any) -> int:
    import shlex

    from tasks.cli.reproduction import differences, figures, free, train, words
    from tasks.logging import summary
    from xformer_kit.config import ensure
    from xformer_kit.registry import ConfigError

    path, config = open_run(args.run, args.parts)
    if (facts := summary.read(path)) is None:
        summary.check_whole(path, args.parts)
        raise ConfigError(
            f"{args.run}: is not finished; it has no summary.json to compare with."
            f" {summary.go_on(args.run, args.parts)}"
        )
    if missing := [name for name in NEEDED if name not in facts]:
        raise ConfigError(
            f"{path / 'summary.json'}: has no {', '.join(missing)}. Bring a copy of it back."
        )
    ensure(config, data=False)
    again = free(path)
    given = words(config, args.parts, again)
    found: dict[str, Any] = {
        "command": shlex.join(["python", "train.py", *given]),
        "differences": list(differences(config, facts, args.parts)),
    }
    if not args.json:
        _show(found)
    if not args.train:
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
    if args.json:
        print_json(found)
    else:
        _compare(found)
    return int(then != now)


def _show(found: dict[str, Any]) -> None:
    from rich.text import Text

    screen = console()
    screen.print(Text.assemble(("  $ ", "dim"), (found["command"], "bold")), soft_wrap=True)
    screen.print()
    for sentence in found["differences"]:
        screen.print(Text(sentence, "yellow"), soft_wrap=True)
    if not found["differences"]:
        screen.print(
            "Config, data, code of the parts, versions and device are as they were.", soft_wrap=True
        )


def _compare(found: dict[str, Any]) -> None:
    from rich.text import Text

    from tasks.cli.reproduction import verdict

    screen = console()
    screen.print(Text(found["run"], "bold"), soft_wrap=True)
    for name, figure in found["figures"].items():
        same = figure["then"] == figure["now"]
        said = verdict(figure["then"], figure["now"])
        screen.print(Text.assemble(f"{name}: ", (said, "" if same else "yellow")), soft_wrap=True)
