"""The application: runs of xformer_kit's models on Lightning, from a saved config to a run's
directory.
"""

from collections.abc import Mapping
from typing import Any

Config = dict[str, Any]  # a composed config, or a node of it
State = dict[str, Any]  # plain data by name, such as that of a checkpoint or of summary.json
Facts = Mapping[str, Any]  # the same, only read
Metrics = dict[str, float]  # metric -> value
Files = tuple[str, ...]  # Python files with components of the user
