"""Creates the built-in callbacks, which observe a run and do not change it: callbacks.norms and
callbacks.pictures.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tasks import Config
from tasks.callbacks.cadence import Cadence
from tasks.callbacks.norms import NormsLog
from tasks.callbacks.pictures import AttentionPictures
from xformer_kit.config.options import callbacks
from xformer_kit.config.options.callbacks import CALLBACKS, only_observes

OBSERVERS: dict[type, Any] = {callbacks.Norms: NormsLog, callbacks.Pictures: AttentionPictures}


def create_built_in(
    config: Config, cadence: Cadence, run_dir: Path, logger: Any, writes: bool
) -> Iterator[Any]:
    """Yields the built-in callbacks of a config, on each rank. writes: whether this is rank 0.

    Raises ConfigError if one needs a package that is not installed.
    """
    for name, node in (config.get("callbacks") or {}).items():
        if only_observes(name):
            options = CALLBACKS.create({"name": name} | dict(node))
            yield OBSERVERS[type(options)](options, cadence, run_dir, logger, writes)
