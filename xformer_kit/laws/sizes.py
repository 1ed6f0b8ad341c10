"""Sizes of the package's components in tiny compositions, in place of their defaults.

A user's component is checked with its own defaults, or with the option sets of its `variants`.
"""

from typing import Any

from xformer_kit.files.user_errors import is_users
from xformer_kit.plan import KINDS

# Option of a component -> its value.
SIZES: dict[str, Any] = {
    "heads": 6,
    "kv_heads": 3,
    "head_dim": 10,
    "width": 19,
    "window": 5,
    "chunk": 4,
    "stride": 4,
    "summary": 1,
    "block": 2,
    "count": 2,
    "experts": 5,
    "rank": 4,
    "landmarks": 3,
}


def sizes(kind: str, name: str) -> dict[str, Any]:
    """Returns the sizes of a component; none for a user's."""
    if is_users(KINDS[kind][name]):
        return {}
    return {key: size for key, size in SIZES.items() if key in KINDS[kind].options(name)}
