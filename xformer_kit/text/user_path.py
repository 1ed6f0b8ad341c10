"""Paths that a user gives."""

import os
import re
from pathlib import Path


def user_path(path: str | Path) -> Path:
    """Returns a path with "~" and "~NAME" replaced by the home directory; "~NAME" is unchanged if
    there is no user of this name, where Path.expanduser raises.
    """
    return Path(os.path.expanduser(path))


def is_override(word: str) -> bool:
    """Whether an argument of a command is an override, KEY=VALUE or ~KEY, and no path."""
    return "=" in word or bool(re.fullmatch(r"~[\w.@]+", word) and not user_path(word).exists())
