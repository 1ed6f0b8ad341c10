"""Signatures that a registry refuses when a component is registered."""

from dataclasses import dataclass

import pytest

from tests.messages import messages
from xformer_kit.extra import EXTRAS, Extra
from xformer_kit.registry import ConfigError, Context, OptionGroup, Registry


class HatArguments:
    """What is passed to a hat."""

    dim: int


def refused(component, name="wrong", given=HatArguments) -> str:
    with pytest.raises(ConfigError) as caught:
        Registry("hat", caller_arguments=given).register(name)(component)
    return str(caught.value)


def test_star_args_are_refused():
    def component(*sizes):
        pass

    assert (
        refused(component)
        == "hat 'wrong': takes *sizes. Name every option instead, so that a typo in a config is an"
        " error."
    )


def test_double_star_kwargs_are_refused():
    def component(dim: int, **rest: int):
        pass

    assert (
        refused(component)
        == "hat 'wrong': takes **rest: int. Name every option instead, so that a typo in a config"
        " is an error."
    )


def test_an_option_without_a_type_is_refused():
    def component(*, size=3):
        pass

    assert (
        refused(component)
        == "hat 'wrong': option size has no type. Annotate it, e.g. size: int = 1."
    )


def test_a_positional_parameter_that_the_model_does_not_give_is_refused():
    def component(size: int = 3):
        pass

    assert (
        refused(component)
        == "hat 'wrong': 'size' is positional, and only dim is passed. Put options after a"
        " bare *."
    )
    assert (
        refused(component, given=object)
        == "hat 'wrong': 'size' is positional, and nothing is passed. Put options after a"
        " bare *."
    )


def test_a_default_that_no_config_can_hold_is_refused():
    def component(*, size: object = frozenset({3})):
        """A hat."""

    assert refused(component) == (
        "hat 'wrong': no config can hold the default of option size, frozenset({3}). Use a number,"
        " a text, true, false, null, or a list or mapping of those."
    )


def test_refused_components_are_collected_while_a_file_is_read():
    registry = Registry("hat")
    registry.refused = []
    registry.register("wrong")(lambda *, size: size)
    assert [component for component, _ in registry.refused] == ["hat wrong"]
    assert list(registry) == []


def test_iteration_leaves_components_out_that_are_still_found():
    registry = Registry("hat")
    for name in ("cap", "bowler"):
        registry.register(name)(type(name, (), {"__doc__": "A hat."}))
    with registry.leaving_out(["cap"]):
        assert (list(registry), len(registry), "cap" in registry) == (["bowler"], 1, True)
        assert registry["cap"].__name__ == "cap"
    assert list(registry) == ["cap", "bowler"]


def test_a_module_without_a_constructor_has_no_options():
    from torch import nn

    registry = Registry("norm")
    registry.register("identity")(type("Same", (nn.Module,), {}))
    assert registry.options("identity") == {}


@dataclass(frozen=True)
class Feather(OptionGroup):
    """A feather on a hat."""

    length: int = 3  # inches
    colour: str = "red"  # of its tip


def test_a_group_of_options_stands_for_its_fields():
    registry = Registry("hat", caller_arguments=HatArguments)

    @registry.register("hunter")
    class Hunter:
        """A hat with a feather."""

        def __init__(self, dim: int, *, size: int = 1, feather: Feather, brim: int = 2):
            self.dim, self.size, self.feather, self.brim = dim, size, feather, brim

    node = {"name": "hunter", "size": 1, "length": 3, "colour": "red", "brim": 2}
    assert list(registry.defaults("hunter").items()) == list(node.items())
    assert registry.options("hunter")["length"].meaning == "inches"
    assert registry.model_arguments("hunter") == ["dim"]
    hat = registry.create({"name": "hunter", "colour": "blue"}, dim=9)
    assert (hat.dim, hat.feather, hat.brim) == (9, Feather(3, "blue"), 2)
    faults = messages(registry.faults({"name": "hunter", "lenght": 4}, "hat", Context()))
    assert len(faults) == 1
    assert "Did you mean 'length'? It has: size, length, colour, brim." in faults[0]


@pytest.mark.parametrize(
    ("near", "method"),
    [
        ("befor_layer", "before_layer"),
        ("sublayer_outputs", "sublayer_output"),
        ("foward", "forward"),
    ],
)
def test_a_method_that_is_nearly_one_of_the_contract_is_refused(near, method):
    """Nothing would call it."""

    class Faulty(Extra):
        def __init__(self, dim: int):
            super().__init__()

    setattr(Faulty, near, lambda self, *args: args)
    with pytest.raises(ConfigError) as caught:
        EXTRAS.register("faulty")(Faulty)
    assert str(caught.value) == (
        f"extra 'faulty': '{near}' is no method of Extra, and nothing calls it. Did you mean"
        f" '{method}'? Else give it a name with _ in front."
    )
