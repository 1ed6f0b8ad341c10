"""Run the laws on the components of a file: causality, caches, padding, kernels, gradients, ...
Exit code 1 if a component breaks a law or none was checked, 2 if one cannot be registered.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any

from tasks.cli.command import console, import_files, print_result, print_wrapped, table

if TYPE_CHECKING:
    from xformer_kit.laws import Check

SUMMARY = "run the laws on components of your own"
EXAMPLES = """examples:
  xformer check my_components.py
  xformer check my_components.py --details
  xformer check my_components.py --json"""
OPTIONS = {
    "file FILE": "a Python file that registers components",
    "--details": "print each composition as a complete command line, and all reasons of refusals",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    from xformer_kit.laws import check_file
    from xformer_kit.laws.checking import REGISTERS

    import_files(args.components)
    checks = check_file(args.file)
    broken = {one.law for check in checks for one in check.results if one.verdict == "broken"}
    missing = unchecked(checks)
    code = 2 if REGISTERS in broken else int(bool(broken or missing))
    return print_result(args, _as_data(checks), _print, checks, args, missing) or code


def unchecked(checks: "list[Check]") -> list[str]:
    """Returns the components that have laws of which none was checked; if no component of the file
    has laws, all.
    """
    with_laws = [check for check in checks if check.has_laws] or checks
    return [check.component for check in with_laws if not check.ran]


def _as_data(checks: "list[Check]") -> list[dict[str, Any]]:
    from xformer_kit.laws import overrides

    return [
        {
            "component": check.component,
            "note": check.note,
            "compositions": [
                {
                    "overrides": " ".join(overrides(trial.config)),
                    "refused": [str(fault) for fault in trial.faults],
                }
                for trial in check.trials
            ],
            "laws": [
                {"law": str(one.law), "verdict": one.verdict, "sentence": str(one.sentence)}
                for one in check.results
            ],
        }
        for check in checks
    ]


def _print(checks: "list[Check]", args: Any, missing: list[str]) -> None:
    for check in checks:
        print_wrapped((check.component, "bold"))
        _print_compositions(check, args.details)
        rows = ((one.law, one.verdict, str(one.sentence)) for one in check.results)
        console().print(table(rows, ("law", "", "result"), no_wrap=range(2)))
        print()
        _print_fixes(check)
    count = Counter(one.verdict for check in checks for one in check.results)
    held, broken, skipped = count["ok"], count["broken"], count["skipped"]
    text = f"{args.file}: {held} held, {broken} broken, {skipped} skipped."
    print_wrapped((text, "bold red" if broken or missing else "bold green"))
    if missing:
        text = f"No law was checked for {', '.join(missing)}: nothing is known of it."
        print_wrapped((text, "bold red"))


def _print_compositions(check: "Check", details: bool) -> None:
    """Prints one line for each composition, or with `details` its complete overrides."""
    from xformer_kit.laws import overrides

    if check.note:
        print_wrapped((check.note, "yellow"))
    rows = []
    for i, trial in enumerate(check.trials, 1):
        reasons = [str(fault) for fault in trial.faults]
        words = " ".join(overrides(trial.config)) if details else trial.changes
        shown = reasons if details else reasons[:1]
        rows.append((f"{i}", "refused" if reasons else "tried", "\n".join([words, *shown])))
    if rows:
        console().print(table(rows, ("", "", "composition"), right=(0,), no_wrap=range(2)))
        print()


def _print_fixes(check: "Check") -> None:
    """Prints for each law that is broken the first sentence of what it checks, and what to do."""
    from xformer_kit.laws import LAWS, explanation
    from xformer_kit.laws.kinds import KIND_LAWS

    laws = KIND_LAWS.get(check.component.split()[0], LAWS)
    broken = [one.law for one in check.results if one.verdict == "broken" and one.law in laws]
    for law in broken:
        rule, _, fix = explanation(laws[law])
        print_wrapped((f"{law}: ", "bold"), f"{rule.partition('. ')[0].rstrip('.')}. {fix}")
    if broken:
        print()
