"""Removes the components that a test has registered by a file."""

from collections.abc import Iterable

from xformer_kit.config import GROUPS
from xformer_kit.registry import Registry


def forget_user_components(registries: Iterable[Registry] = tuple(GROUPS.values())) -> None:
    """Removes every component of a user's file from the registries."""
    for registry in registries:
        for module in {component.__module__ for component in registry.loaded.values()}:
            if module.startswith("xformer_kit_components"):
                registry.forget(module)
