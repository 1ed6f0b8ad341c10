"""`python -m xformer_kit ...` is `xformer ...`, also for torchrun: `torchrun -m xformer_kit train`.

The command is an application of this library, which therefore names it only here, as text.
"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # `python -m` puts the current directory first, whose tasks.py would be run.
        sys.path[0] = str(Path(__file__).resolve().parents[1])
    runpy.run_module("tasks.entry", run_name="__main__", alter_sys=True)
