"""Optional observers that change nothing in the run: callbacks.norms, callbacks.pictures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks import Config
from tasks.callbacks.cadence import Cadence
from tasks.callbacks.norms import NormsLog
from tasks.callbacks.pictures import AttentionPictures
from xformer_kit.config import callbacks
from xformer_kit.config.callbacks import CALLBACKS, only_observes

MADE: dict[type, Any] = {callbacks.Norms: NormsLog, callbacks.Pictures: AttentionPictures}


def watchers(
    config: Config, cadence: Cadence, run_dir: Path, logger: Any, first: bool
) -> Iterator[Any]:
    """The optional observers in a config, on every rank; `first`: whether this one writes.

    Raises ConfigError if one needs a package that is not installed.
    """
    for name, options in (config.get("callbacks") or {}).items():
        if only_observes(name):
            asked = CALLBACKS.create({"name": name} | dict(options))
            yield MADE[type(asked)](asked, cadence, run_dir, logger, first)
