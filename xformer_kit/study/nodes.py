"""Types of plain data."""

from collections.abc import Mapping
from typing import Any

Node = Mapping[str, Any]  # of a config, or of a JSON file
Config = dict[str, Any]  # a whole config, resolved
