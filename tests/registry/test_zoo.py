"""Rare components: listed without an import, imported one by one."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from xformer_kit.attention import ATTENTIONS
from xformer_kit.config.options.groups import GROUPS, MAPPING_GROUPS, NESTED_GROUPS
from xformer_kit.registry import ConfigError, Registry
from xformer_kit.registry.zoo import PACKAGE, ZOO, zoo_modules

pytestmark = pytest.mark.extended

GROUPED = GROUPS | NESTED_GROUPS | MAPPING_GROUPS
REGISTRIES = {r.group.rpartition(".")[2]: r for r in GROUPED.values()}
FILES = [path for path in sorted(ZOO.glob("*/*.py")) if not path.name.startswith("_")]


def imported(*lines: str) -> list[str]:
    """The components of the zoo that another process has imported after these lines."""
    shown = f"print(*[m for m in sys.modules if m.count('.') == 3 and '{PACKAGE}.' in m])"
    code = "\n".join(["import sys", *lines, shown])
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return out.split()


def test_nothing_is_imported_before_a_component_is_needed():
    assert imported("import xformer_kit") == []
    lines = [
        "from xformer_kit.attention import ATTENTIONS",
        "import xformer_kit.config.line.composition",
        "assert 'performer' in ATTENTIONS and 'performer' in sorted(ATTENTIONS)",
        "assert len(ATTENTIONS) == len(list(ATTENTIONS)) > len(ATTENTIONS.loaded)",
    ]
    assert imported(*lines) == []
    assert imported(*lines, "xformer_kit.compose(['attn=linear'])") == []


def test_a_component_is_imported_with_no_other():
    lines = ["from xformer_kit.attention import ATTENTIONS", "ATTENTIONS.options('performer')"]
    assert imported(*lines) == ["xformer_kit.zoo.attn.performer"]
    lines = ["import xformer_kit", "xformer_kit.compose(['attn=performer'])"]
    assert imported(*lines) == ["xformer_kit.zoo.attn.performer"]


def test_a_file_registers_the_component_of_its_name_and_no_other():
    for file in FILES:
        module = importlib.import_module(f"{PACKAGE}.{file.parent.name}.{file.stem}")
        found = [
            (group, name)
            for group, registry in REGISTRIES.items()
            for name, component in registry.loaded.items()
            if component.__module__ == module.__name__
        ]
        assert found == [(file.parent.name, file.stem)]


def test_every_folder_has_the_name_of_a_group():
    assert {path.parent.name for path in FILES} <= REGISTRIES.keys()


def test_helpers_with_a_leading_underscore_are_not_listed():
    assert not any(name.startswith("_") for name in zoo_modules("attn"))
    assert zoo_modules("no_such_group") == {}


def test_the_order_of_names_does_not_depend_on_what_was_imported_first():
    before = list(ATTENTIONS)
    assert ATTENTIONS["performer"] is ATTENTIONS.loaded["performer"]
    assert list(ATTENTIONS) == before
    assert list(ATTENTIONS.keys()) == before


def test_other_names_of_the_zoo_are_answered():
    assert (
        str(ATTENTIONS.unknown("favor").at("attn")) == "attn: 'favor' is called 'performer' here."
    )


def test_a_name_of_the_zoo_is_taken():
    with pytest.raises(ConfigError, match="attn 'performer': is registered twice"):
        ATTENTIONS.register("performer")(type("Performer", (), {}))


def test_a_file_without_its_component_is_an_error_of_ours():
    """A second registry of the group: the file registers in the first."""
    with pytest.raises(ImportError, match=r"zoo\.attn\.performer registers no attn 'performer'"):
        Registry("attn")["performer"]


def test_the_name_of_a_component():
    assert ATTENTIONS.name_of(ATTENTIONS["performer"]) == "performer"
    assert ATTENTIONS.name_of(int) is None
