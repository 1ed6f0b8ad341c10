"""Runs the `xformer` command: `python -m tasks.cli`."""

import sys

from tasks.cli import main

sys.exit(main())
