"""python -m tasks.cli is the `xformer` command."""

import sys

from tasks.cli import main

sys.exit(main())
