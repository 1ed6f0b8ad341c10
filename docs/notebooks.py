"""Pages of the notebooks, with their saved outputs."""

from pathlib import Path

from docs import markup
from docs.written_pages import ROOT

FOLDER = ROOT / "notebooks"


def notebook_pages(out: Path) -> dict[str, str]:
    """Returns {page: Markdown} and writes the pictures of the outputs into `out`."""
    from nbconvert import MarkdownExporter

    found = {}
    for path in sorted(FOLDER.glob("*.ipynb")):
        folder = out / "notebooks" / path.stem
        options = {"output_files_dir": path.stem, "unique_key": "output"}
        text, resources = MarkdownExporter().from_filename(str(path), options)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in resources["outputs"].items():
            (folder.parent / name).write_bytes(content)
        found[f"notebooks/{path.stem}"] = text.replace(".ipynb)", ".md)")  # links between notebooks
    intro = "Each notebook answers one question. `python -m notebooks` runs them again."
    pages = markup.toctree([Path(page).name for page in found], hidden=False)
    found["notebooks/index"] = markup.page("Notebooks", intro, pages)
    return found
