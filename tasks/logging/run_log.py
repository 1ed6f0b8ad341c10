"""Sets up the log "xformer" of a run: train.log, and warnings on stderr."""

import logging
import os
import sys
from pathlib import Path

from xformer_kit.text.printable import printable


class _PrintableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def log_into(path: Path) -> None:
    """Write the log "xformer" to a file, and its warnings also to stderr."""
    logger = logging.getLogger("xformer")
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()
    file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    screen = logging.StreamHandler()
    screen.setLevel(logging.WARNING)
    screen.setFormatter(_PrintableFormatter())
    logger.handlers = [file, screen]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.info("process %d in %s: %s", os.getpid(), path.parent, " ".join(sys.argv))
