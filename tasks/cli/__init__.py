"""The `xformer` command, which trains, lists components, describes models and reads runs.

Each command is a file with its SUMMARY, OPTIONS, EXAMPLES and `run(args)`, which returns the exit
code. It imports torch and other packages only in functions, so that `--help` is fast. An error is
one sentence on stderr, with exit code 2.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from tasks.cli import (
    check,
    compare,
    completion,
    components,
    consolidate,
    coordinates,
    describe,
    diff,
    eject,
    evaluate,
    explain,
    export,
    find_batch,
    find_lr,
    generate,
    identify,
    import_model,
    judge,
    new,
    parity,
    plot,
    report,
    reproduce,
    runs,
    schema,
    score,
    status,
    sweep,
    train,
    tries,
    try_change,
)
from tasks.cli.parser import Parser, add_options, run_name, versions
from tasks.logging.streams import discard, open_missing_streams, output_without_reader
from tasks.process.processes import import_environment

COMMANDS = {
    "train": train,
    "new": new,
    "components": components,
    "schema": schema,
    "describe": describe,
    "diff": diff,
    "explain": explain,
    "identify": identify,
    "import": import_model,
    "export": export,
    "eject": eject,
    "consolidate": consolidate,
    "parity": parity,
    "coordinates": coordinates,
    "plot": plot,
    "evaluate": evaluate,
    "generate": generate,
    "score": score,
    "check": check,
    "runs": runs,
    "status": status,
    "report": report,
    "compare": compare,
    "try": try_change,
    "tries": tries,
    "judge": judge,
    "reproduce": reproduce,
    "sweep": sweep,
    "find-lr": find_lr,
    "find-batch": find_batch,
}
COMPONENTS_OPTION = {
    "--components* FILE": "a Python file with components of your own; may be repeated"
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    open_missing_streams()
    parser = Parser(
        prog="xformer",
        description="Trains transformers, lists components, describes models, and uses runs.",
    )
    parser.add_argument("--version", action="version", version=versions())
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True
    )
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name, help=module.SUMMARY, description=module.__doc__, epilog=module.EXAMPLES
        )
        own = {} if module in (train, new) else COMPONENTS_OPTION
        add_options(command, {**module.OPTIONS, **own})
        command.set_defaults(components=[])
    os.environ.update(import_environment())  # for the processes that this one starts
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")  # progress bars of libraries
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments:
        parser.print_help()
        return 0
    if arguments[0] == "train":  # its arguments are those of Hydra
        if any(word in completion.FLAGS for word in arguments):
            return _with_faults(lambda: completion.main(arguments[1:], COMMANDS))
        with output_without_reader():
            return _with_faults(lambda: train.main(arguments[1:]))
    args, rest = parser.parse_known_args(arguments)
    if rest and (not hasattr(args, "inputs") or any(word.startswith("-") for word in rest)):
        commands.choices[args.command].reject(rest)
    if rest:  # overrides after --components, since argparse takes only one contiguous list
        args.inputs += map(run_name, rest)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a command removes temporary files
    return _with_faults(lambda: COMMANDS[args.command].run(args))


def _with_faults(run: Callable[[], int]) -> int:
    """Returns the exit code of a command; faults are printed."""
    from xformer_kit.registry import ConfigError

    try:
        exit_code = run()
        sys.stdout.flush()
        return exit_code
    except ConfigError as error:
        print(*error.messages, sep="\n", file=sys.stderr)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # xformer components | head
            discard(sys.stdout)
            return 0
        if error.filename is None:
            raise
        print(f"{error.filename}: {error.strerror}. Give another path.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped by SIGINT.", file=sys.stderr)
        return 130
