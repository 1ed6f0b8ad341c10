"""Every preset is a composition of its family, at any size."""

from pathlib import Path

import pytest

from xformer_kit import compose
from xformer_kit.export import published_form
from xformer_kit.hub.family import model_types, of_type

FAMILIES = [(of_type(name).preset, name) for name in model_types()]
PRESETS = sorted(path.stem for path in (Path(__file__).parents[2] / "conf/preset").glob("*.yaml"))


@pytest.mark.parametrize(("preset", "model_type"), FAMILIES)
@pytest.mark.parametrize("sizes", [[], ["model.dim=96", "model.layers=6", "attn.heads=4"]])
def test_a_preset_is_of_its_family(preset, model_type, sizes):
    config = compose([f"preset={preset}", *sizes], data=False)
    _, keys = published_form(config, 37, [model_type])
    assert keys["model_type"] == model_type


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_its_own_name(preset):
    assert compose([f"preset={preset}"], data=False)["name"] == preset
