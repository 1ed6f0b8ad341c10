"""Signatures that a registry refuses when a component is registered."""

import pytest

from xformer_kit.registry import ConfigError, Registry


def refused(part, name="wrong", given=("dim",)) -> str:
    with pytest.raises(ConfigError) as caught:
        Registry("hat", given=given).register(name)(part)
    return str(caught.value)


def test_star_args_are_refused():
    def part(*sizes):
        pass

    assert (
        refused(part)
        == "hat 'wrong' takes *sizes; name every option instead, so that a typo in a config is an"
        " error."
    )


def test_double_star_kwargs_are_refused():
    def part(dim: int, **rest: int):
        pass

    assert (
        refused(part)
        == "hat 'wrong' takes **rest; name every option instead, so that a typo in a config is an"
        " error."
    )


def test_an_option_without_a_type_is_refused():
    def part(*, size=3):
        pass

    assert refused(part) == "hat 'wrong': option size has no type; annotate it, e.g. size: int = 1."


def test_a_positional_parameter_that_the_model_does_not_give_is_refused():
    def part(size: int = 3):
        pass

    assert (
        refused(part)
        == "hat 'wrong': the model does not give 'size' (it gives dim); put options behind a"
        " bare *."
    )
    assert (
        refused(part, given=())
        == "hat 'wrong': the model does not give 'size' (it gives nothing); put options behind a"
        " bare *."
    )


def test_a_module_without_a_constructor_has_no_options():
    from torch import nn

    registry = Registry("norm")
    registry.register("identity")(type("Same", (nn.Module,), {}))
    assert registry.options("identity") == {}
