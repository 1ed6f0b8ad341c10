"""Modules that an extra has for each layer."""

import pytest

from xformer_kit import ConfigError
from xformer_kit.extra import EXTRAS, Extra
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import build_tiny_model


class OfLayer(Extra):
    pass


@pytest.fixture(autouse=True)
def forget_registered_components():
    yield
    EXTRAS.forget(__name__)


def test_a_module_that_the_extra_does_not_hold_is_refused():
    """Its parameters would be in no optimizer and in no checkpoint."""

    @EXTRAS.register("forgetful")
    class Forgetful(Extra):
        layer_class = OfLayer

        def __init__(self, dim: int):
            super().__init__()

        def layer_module(self, depth, sublayers):
            return OfLayer()

    with pytest.raises(ConfigError) as caught:
        build_tiny_model(tiny_config(extra={"forgetful": {}}))
    assert caught.value.messages == (
        "extra.forgetful: 'layer_module' returns a module that the extra does not hold, and that"
        " would not be trained. Set self.layers[str(depth)] = module.",
    )
