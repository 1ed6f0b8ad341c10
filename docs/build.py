"""Builds the site: writes the pages, renders them with Sphinx, checks links and text."""

import shutil
import subprocess
import sys
from pathlib import Path

from docs.broken_links import broken_links
from docs.lost_lines import lost_lines
from docs.write import write

HERE = Path(__file__).parent


def build(work: Path, out: Path) -> list[str]:
    """Writes the pages into `work` and builds the site into `out`. Returns the faults of the
    site, one sentence each.
    """
    pages, static = work / "pages", work / "static"
    marks = {pages: "index.md", static: "pictures", out: "index.html"}  # of an earlier build
    if faults := [
        f"{folder}: exists and is not an earlier build, so it is not replaced. Name another folder."
        for folder, mark in marks.items()
        if folder.exists() and not (folder / mark).exists()
    ]:
        return faults
    write(pages, static)
    return render(pages, out, static) or [*broken_links(out), *lost_lines(pages, out)]


def render(pages: Path, out: Path, static: Path) -> list[str]:
    """Renders the pages with Sphinx and returns its warnings. The files in `static` are copied
    into the site unchanged.
    """
    shutil.rmtree(out, ignore_errors=True)
    command = ["-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-b", "html", "-c", str(HERE)]
    command += ["-d", str(pages.with_name("doctrees")), "-D", f"html_extra_path={static.resolve()}"]
    done = subprocess.run(
        [sys.executable, *command, str(pages), str(out)], capture_output=True, text=True
    )
    warnings = [line for line in done.stderr.splitlines() if line.strip()]
    return warnings if done.returncode else []
