"""Checks a command line, composes its config with Hydra, and trains.

python train.py model=decoder attn.heads=8
python train.py -m position=rotary,alibi
python train.py resume=outputs/decoder/2026-11-20_12-00-00
"""

import os
import sys
from pathlib import Path

from tasks.logging import startup
from tasks.run.exit_codes import end_at_signals
from tasks.run.processes import import_environment
from xformer_kit.registry import ConfigError


def main() -> int:
    end_at_signals()
    os.environ.update(import_environment())  # for the processes that this one starts
    startup.show("Checking the config", plain=False)
    from xformer_kit.config import preflight

    try:
        line = preflight(sys.argv[1:])
    except ConfigError as error:
        startup.clear()
        print(*error.faults, sep="\n", file=sys.stderr)
        return 2
    startup.clear()
    if line.help:
        from tasks.cli.train_help import train_help

        print(train_help(), end="")
        return 0
    if line.resume is not None:
        from tasks.run.resume import resume_run

        return resume_run(Path(line.resume), line.components)
    from tasks.run.hydra_app import compose_and_run

    return compose_and_run(line)


if __name__ == "__main__":
    sys.exit(main())
