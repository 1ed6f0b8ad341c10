"""The entry of the program: signals are handled before the commands are imported."""

import sys
from collections.abc import Sequence

from tasks.process.exit_codes import end_at_signals


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command of `xformer` and returns its exit code."""
    end_at_signals()
    from tasks.cli import main as run_command

    return run_command(argv)


if __name__ == "__main__":
    sys.exit(main())
