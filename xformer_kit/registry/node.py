"""A node of a config."""

from collections.abc import Mapping
from typing import Any

Node = Mapping[str, Any]  # key -> value; a whole config is a node too
