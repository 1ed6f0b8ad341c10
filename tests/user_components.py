"""Removes the components that a test has registered by a file."""

import sys
from collections.abc import Iterable

from xformer_kit.config import GROUPS
from xformer_kit.config.options.user_components import _loaded
from xformer_kit.files.user_modules import PREFIX
from xformer_kit.registry import Registry


def forget_user_components(registries: Iterable[Registry] = tuple(GROUPS.values())) -> None:
    """Removes every component of a user's file from the registries, and the modules of files whose
    components were refused.
    """
    for registry in registries:
        for module in {component.__module__ for component in registry.loaded.values()}:
            if module.startswith(PREFIX):
                registry.forget(module)
    for name in [name for name in sys.modules if name.startswith(PREFIX)]:
        del sys.modules[name]
    _loaded.clear()
