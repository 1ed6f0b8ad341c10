"""From nothing to a site whose links hold, and that shows every line."""

import shutil
import subprocess
import sys
from pathlib import Path

from docs.links import broken
from docs.lost import lost
from docs.write import write

HERE = Path(__file__).parent


def build(work: Path, out: Path) -> list[str]:
    """Write the pages into `work`, build the site into `out`, and say what is wrong with it, one
    sentence each.
    """
    pages, shown = work / "pages", work / "shown"
    marks = {
        pages: "index.md",
        shown: "pictures",
        out: "index.html",
    }  # what an earlier build has left there
    if strange := [
        place for place, mark in marks.items() if place.exists() and not (place / mark).exists()
    ]:
        return [
            f"{place}: is there and is no earlier build, which would be replaced. Name another"
            " folder."
            for place in strange
        ]
    write(pages, shown)
    return render(pages, out, shown) or [*broken(out), *lost(pages, out)]


def render(pages: Path, out: Path, shown: Path) -> list[str]:
    """Sphinx's own complaints about pages; any of them is a fault. What lies in `shown` becomes a
    part of the site as it is.
    """
    shutil.rmtree(out, ignore_errors=True)
    command = ["-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-b", "html", "-c", str(HERE)]
    command += ["-d", str(pages.with_name("doctrees")), "-D", f"html_extra_path={shown.resolve()}"]
    done = subprocess.run(
        [sys.executable, *command, str(pages), str(out)], capture_output=True, text=True
    )
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return said if done.returncode else []
