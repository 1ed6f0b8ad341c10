"""Check, compose, run.

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
    os.environ.update(import_environment())  # of whatever this process starts
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
    from tasks.run import hydra_app

    if line.resume is not None:
        return hydra_app.resume(Path(line.resume), line.components)
    return hydra_app.compose_and_run(line)


if __name__ == "__main__":
    sys.exit(main())
