"""The application: trains xformer_kit's models with Lightning, from a config to a run's directory
with checkpoints, logs and results.
"""

from collections.abc import Mapping
from typing import Any

Config = dict[str, Any]  # a composed config, or a node of it
State = dict[str, Any]  # name -> plain data, such as the content of a checkpoint or summary.json
Facts = Mapping[str, Any]  # a read-only Config or State
Metrics = dict[str, float]  # metric -> value
Files = tuple[str, ...]  # Python files with components of the user
