"""What is said of a config that is refused; several tests share it."""

from collections.abc import Sequence

import pytest

from xformer_kit import ConfigError, compose


def refused(words: str | Sequence[str]) -> list[str]:
    """Every sentence that answers some overrides: a line of them, or a list where one holds a
    space.
    """
    with pytest.raises(ConfigError) as error:
        compose(words.split() if isinstance(words, str) else list(words))
    return list(error.value.messages)
