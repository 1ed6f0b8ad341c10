"""Types of plain data."""

from collections.abc import Mapping
from typing import Any

Node = Mapping[str, Any]  # a part of a config or of a JSON file
Config = dict[str, Any]  # a complete, resolved config
