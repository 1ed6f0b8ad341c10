"""The site: every component has a page with all its options, and no link is broken."""

import html
import re
import sys
from pathlib import Path

import pytest

from docs.broken_links import broken_links
from docs.build import build, render
from docs.kinds import KINDS, page
from docs.lost_lines import lost_lines
from docs.pictures import drawn
from docs.write import write
from docs.written_pages import FILES, OTHER_FORM
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.inspect.components import option_rows
from xformer_kit.registry import Registry

pytestmark = pytest.mark.extended

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """All pages, written once for all workers."""
    from filelock import FileLock

    place = tmp_path_factory.getbasetemp()
    place = (place.parent if place.name.startswith("popen-") else place) / "reference"
    with FileLock(f"{place}.lock"):
        if not (place / "done").is_file():
            write(place / "pages", place / "static")
            (place / "done").touch()
    return place


def visible_text(file: Path) -> str:
    """Returns the visible text of a page."""
    return " ".join(
        html.unescape(re.sub(r"<[^>]+>", " ", file.read_text(encoding="utf-8"))).split()
    )


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_its_links_work(written):
    pytest.importorskip("furo", reason="the site needs pip install -e '.[docs]'")
    assert render(written / "pages", written / "site", written / "static") == []
    assert broken_links(written / "site") == []
    assert lost_lines(written / "pages", written / "site") == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_component_has_a_page_with_all_its_options(written, kind):
    for name in KINDS[kind]:
        text = visible_text(written / "pages" / f"{page(kind, name)}.md")
        for row in option_rows(KINDS[kind], name):
            default = row.default or "''"
            assert " ".join(f"{row.name} {row.type} {default}".split()) in text, (
                f"{kind} {name} {row.name}"
            )


@pytest.mark.slow
def test_every_picture_exists_and_is_on_its_page(written):
    from matplotlib.image import imread

    for kind, name, _ in drawn():
        file = f"pictures/{kind}-{name}.png"
        assert imread(written / "static" / file)[..., :3].min() < 0.7, f"{file} is blank"
        assert f'src="../../{file}"' in (written / "pages" / f"{page(kind, name)}.md").read_text(
            encoding="utf-8"
        )


def test_every_option_has_a_meaning():
    without_meaning = [
        f"{kind} {name} {row.name}"
        for kind in KINDS
        for name in KINDS[kind]
        for row in option_rows(KINDS[kind], name)
        if not row.meaning
    ]
    without_meaning += [
        f"{name} {key}"
        for name in SETTINGS
        for key, option in SETTINGS.options(name).items()
        if not option.meaning
    ]
    assert without_meaning == []


def test_every_registry_has_pages():
    """Settings, also those of the trainer and of groups of parameters, are a page of their own; an
    empty registry has none.
    """
    settings = ("settings", "trainer", "parameter group")
    found = {
        id(value): value
        for name, module in list(sys.modules.items())
        if name.split(".")[0] in ("xformer_kit", "tasks")
        for value in vars(module).values()
        if isinstance(value, Registry) and value and value.kind not in settings
    }
    own = [
        r.group
        for r in found.values()
        if not all(p.__module__.startswith("xformer_kit_components") for p in r.values())
    ]
    assert sorted(own) == sorted(KINDS)


def test_every_file_of_markdown_is_a_page():
    """README.md is the front page of the repository; docs/components.md is the pages of components;
    docs/python.md has a reference added.
    """
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert found <= FILES.keys() | OTHER_FORM.keys()


def test_broken_links_of_a_page_fail_the_build(tmp_path):
    pytest.importorskip("furo", reason="the site needs pip install -e '.[docs]'")
    pages, static = tmp_path / "pages", tmp_path / "static"
    pages.mkdir()
    static.mkdir()
    links = (
        "[a component](components/none.md)",
        "[a place](#nowhere)",
        "[a place](other.md#nowhere)",
        "![a picture](none.png)",
    )
    (pages / "index.md").write_text("\n\n".join(["# Title", "[well](other.md#place)", *links]))
    (pages / "other.md").write_text("---\norphan: true\n---\n\n# Other\n\n## Place\n")
    faults = render(pages, tmp_path / "site", static)
    assert sorted(
        int(line) for fault in faults for line in re.findall(r"index\.md:(\d+)", fault)
    ) == [5, 7, 9, 11]


TEXT = """# Title

A paragraph with 95
% intervals, a [link](https://arxiv.org), a `<mask>` and
2 * 3 * 4.

```bash
type <this>  # 1 & 2
```

| a | *b* |
| --- | --- |
| 1. one | `x_y` |

    % xformer plot <what>

- a point
    % of another

## The title again

A paragraph with 95
"""


def test_every_line_is_on_its_page(tmp_path):
    """Also a line that starts with %, which MyST reads as a comment by default. A line that is
    missing where it belongs is a fault, also if the same text is elsewhere on the page.
    """
    pytest.importorskip("furo", reason="the site needs pip install -e '.[docs]'")
    pages, static, site = tmp_path / "pages", tmp_path / "static", tmp_path / "site"
    pages.mkdir()
    static.mkdir()
    (pages / "index.md").write_text(TEXT)
    assert render(pages, site, static) == [] and lost_lines(pages, site) == []
    built = (site / "index.html").read_text()
    (site / "index.html").write_text(built.replace("% intervals", ""))
    (fault,) = lost_lines(pages, site)
    assert (
        fault == "docs/index.md:4: is missing on the page: % intervals, a"
        " [link](https://arxiv.org), a `<mask>` and"
    )

    def lost(*texts: str) -> list[int]:
        """The lines that are missing after the first occurrence of each text is removed."""
        damaged = built
        for text in texts:
            damaged = damaged.replace(text, "", 1)
        (site / "index.html").write_text(damaged)
        return [int(fault.split(":")[1]) for fault in lost_lines(pages, site)]

    assert lost("x_y", "a point") == [13, 17]
    assert lost("A paragraph with 95") == [3]  # line 22 has the same text
    assert lost("<h2>The title again") == [20]  # the navigation has the same text
    (site / "index.html").unlink()
    assert lost_lines(pages, site) == ["docs/index.md: has no page"]


def test_a_folder_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("friend")
    (fault,) = build(tmp_path / "work", tmp_path / "letters")
    assert fault.startswith(f"{tmp_path / 'letters'}: exists and is not an earlier build")
    assert (tmp_path / "letters" / "dear.txt").read_text() == "friend" and not (
        tmp_path / "work"
    ).exists()


PAGE = '<html><body><h1 id="top">Title</h1>{}</body></html>'


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<a href="#top">up</a> <a href="https://arxiv.org">away</a>', None),
        ('<a href="none.html">component</a>', "links to none.html, which does not exist"),
        ('<a href="#nowhere">place</a>', "links to #nowhere, an anchor that does not exist"),
        ('<img src="none.png">', "links to none.png, which does not exist"),
        (
            '<script src="https://cdn.example/mathjax.js"></script>',
            "which is not a file of the site",
        ),
        ('<a href="../index.html">out</a>', "links to ../index.html, which does not exist"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(tmp_path, body, fault):
    (tmp_path / "index.html").write_text(PAGE.format(""))
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text(PAGE.format(body))
    found = broken_links(folder)
    assert len(found) == (fault is not None) and all(fault in one for one in found)
