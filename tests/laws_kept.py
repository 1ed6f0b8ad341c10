"""Tests that compositions keep every law."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.registry import SLOW


def every_law_test(cases: Mapping[str, Mapping[str, Any]]) -> Callable[..., None]:
    """Returns a test of these changes of a tiny config, of which the first one also keeps the laws
    that compile it. `make test` has rows of pairs with each component in place of it.
    """
    first = next(iter(cases))

    @pytest.mark.extended
    @pytest.mark.parametrize("name", cases)
    def test(name: str) -> None:
        config = tiny_config(**cases[name])
        assert not faults(config)
        for law in LAWS.keys() - (set() if name == first else SLOW):
            LAWS[law](config)

    return test
