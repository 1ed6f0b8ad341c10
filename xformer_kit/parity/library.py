"""The library transformers, which is imported when a model of it is first made."""

import functools
import importlib.util
import os
from typing import Any

from xformer_kit.registry import config_error


@functools.cache
def transformers() -> Any:
    """Returns the library, which then downloads nothing and prints no warnings. Raises ConfigError
    if it is not installed.
    """
    if importlib.util.find_spec("transformers") is None:
        rule = "needs the package transformers, the reference of the comparison"
        raise config_error("parity", rule, "none", "Use pip install 'transformers>=5.20,<6'.")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers as library

    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    return library
