"""The notebooks as pages, with the outputs that they contain."""

from pathlib import Path

from docs import markup
from docs.written_pages import ROOT

FOLDER = ROOT / "notebooks"


def notebook_pages(out: Path) -> dict[str, str]:
    """Page -> its Markdown; pictures are written next to the pages in `out`."""
    from nbconvert import MarkdownExporter

    found = {}
    for path in sorted(FOLDER.glob("*.ipynb")):
        folder = out / "notebooks" / path.stem
        options = {"output_files_dir": path.stem, "unique_key": "output"}
        text, resources = MarkdownExporter().from_filename(str(path), options)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in resources["outputs"].items():
            (folder.parent / name).write_bytes(content)
        found[f"notebooks/{path.stem}"] = text
    links = [
        f"- [{text.splitlines()[0].lstrip('# ')}]({Path(page).name}.md)"
        for page, text in found.items()
    ]
    intro = "One question each. `python -m notebooks` runs them again."
    found["notebooks/index"] = markup.page("Notebooks", intro, "\n".join(links))
    return found
