"""Whether the requirements of pyproject.toml resolve with constraints.txt (half a minute).

`python -m tests.requirements_resolve` stores the hash of what resolves in resolved.txt; the test
resolves again only what has another hash.
"""

import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
STORED = ROOT / "tests" / "resolved.txt"


def extras() -> dict[str, list[str]]:
    return _project()["optional-dependencies"]


def digest() -> str:
    """Returns the hash of all requirements and of the constraints."""
    project = _project()
    stated = project["dependencies"], extras(), (ROOT / "constraints.txt").read_text()
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()


def conflicts() -> dict[str, str]:
    """Returns what pip prints for each extra, and for all together, that cannot be installed."""
    found = {}
    for names in [*extras(), ",".join(extras())]:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet"]
            + ["-c", "constraints.txt", "-e", f".[{names}]"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            found[names] = done.stderr
    return found


def _project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


if __name__ == "__main__":
    if found := conflicts():
        sys.exit("\n\n".join(f"{names}: {printed}" for names, printed in found.items()))
    STORED.write_text(digest() + "\n")
