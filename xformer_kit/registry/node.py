"""A node of a config."""

from collections.abc import Mapping
from typing import Any

Node = Mapping[str, Any]  # names -> values; a whole config is one too
