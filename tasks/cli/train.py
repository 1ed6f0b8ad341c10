"""Train a transformer that is composed of components: checks a command line, composes its config
with Hydra, and trains.
"""

import os
import sys
from pathlib import Path

from tasks.logging import startup
from tasks.process.exit_codes import end_at_signals
from tasks.process.processes import import_environment
from xformer_kit.registry import ConfigError
from xformer_kit.text.printable import printable

SUMMARY = "train a transformer; xformer train --help lists its choices"
EXAMPLES = """examples:
  xformer train model=decoder attn.heads=8
  xformer train -m position=rotary,alibi
  xformer train resume=outputs/decoder/2026-11-20_12-00-00"""
OPTIONS: dict[str, str] = {"inputs* OVERRIDE": "a choice of a group, or a value: GROUP=CHOICE"}


def main(words: list[str]) -> int:
    """Trains from the words of a command line, those of Hydra; returns the exit code. Raises
    ConfigError for words of --help without a page, and for an invalid node of a study.
    """
    end_at_signals()
    os.environ.update(import_environment())  # for the processes that this one starts
    startup.show("Importing PyTorch", plain=False)
    from tasks.run.early_checks import check_sources
    from xformer_kit.config import preflight

    startup.show("Checking the config", plain=False)
    try:
        line = preflight(words)
        if line.shown is None:
            check_sources(line.configs)
    except ConfigError as error:
        startup.clear()
        print(*error.faults, sep="\n", file=sys.stderr)
        return 2
    startup.clear()
    if line.components and not any(w.lstrip("+").startswith("components=") for w in words):
        files = ", ".join(map(printable, line.components))
        print(f"The config file brings components, whose code is run: {files}", file=sys.stderr)
    if line.help:
        from tasks.cli.train_help import train_help

        print(train_help(line.argv), end="")
        return 0
    if line.shown is not None:
        print(line.shown, end="")
        return 0
    if line.resume is not None:
        from tasks.run.resume import resume_run

        return resume_run(Path(line.resume), line.components, line.max_steps)
    from tasks.run.hydra_app import run_line

    return run_line(line)
