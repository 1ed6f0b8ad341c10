"""The page that counts parts beside other libraries says what is so, of ours and of theirs."""

import re
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pytest

from xformer_kit.inspect.peers import COUNTS, LACKS, OURS, lists, own, refreshed
from xformer_kit.mask import MASKS, Mask

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")
SMALL = f"""# Two kinds
{COUNTS[0]}
{COUNTS[1]}
{LACKS[0]}
{LACKS[1]}

### mask: who may look at whom
- {OURS}: old
- peer: `a` (mask causal); `b` two words; `c` (mask no_such); `d` (own part)

### position.scaling
- {OURS}: `older`; `still`
- peer: none
"""


def test_the_page_is_that_of_the_registries():
    assert refreshed(PAGE) == PAGE, "run: python -m xformer_kit.inspect.peers docs/peers.md"


def test_a_small_page():
    page = refreshed(SMALL)
    masks = len(own()["mask"])
    assert f"| mask | {masks} | 4 |\n| position.scaling | 5 | 0 |" in page
    assert "  - mask (2): `b` two words; `c`\n" in page
    assert f"- {OURS}: `dynamic`; `linear`; `llama3`; `longrope`; `yarn`" in page
    assert refreshed(page) == page


def test_a_new_part_makes_the_page_old():
    class Here(Mask):
        """Nothing."""

    MASKS.register("here")(Here)
    try:
        assert "`here`" in refreshed(PAGE)
        assert refreshed(PAGE) != PAGE
    finally:
        MASKS.forget(__name__)
    assert "`here`" not in refreshed(PAGE)


def test_every_kind_lists_every_library_and_no_name_twice():
    kinds = lists(PAGE)
    assert kinds.keys() == own().keys()
    for kind, of in kinds.items():
        assert list(of) == [OURS, "x-transformers", "xformers", "litgpt", "OLMo-core"], kind
        for library, names in of.items():
            assert len({name.name for name in names}) == len(names), (kind, library)


def test_what_is_said_to_be_ours_is_of_a_kind():
    said = {
        name.ours.partition(" ")[0]
        for of in lists(PAGE).values()
        for names in of.values()
        for name in names
    }
    assert said <= {"", "own", "model", "extra", *own()}


@pytest.mark.parametrize(
    ("library", "package"), [("x-transformers", "x_transformers"), ("litgpt", "litgpt")]
)
def test_the_peers_have_what_is_listed(library, package):
    try:
        installed = version(library)
    except PackageNotFoundError:
        pytest.skip(f"{library} is not installed")
    if f"| {library} | {installed}," not in PAGE:
        pytest.skip(f"the page was written for another version than {installed}")
    source = "\n".join(
        path.read_text()
        for path in Path(find_spec(package).submodule_search_locations[0]).glob("*.py")
    )
    for of in lists(PAGE).values():
        for name in of[library]:
            flag = name.name.partition("=")[0]
            own_word = re.sub("^(attn|ff)_", "", flag)  # it hands attn_x to its attention as x
            assert re.search(rf"\b({flag}|{own_word})\b", source), name.name
