"""Plain values, as a config or a JSON file holds them."""

from collections.abc import Mapping
from typing import Any

Plain = Mapping[str, Any]  # by name
