"""The type of an option says which values fit, in words that a user reads."""

from typing import Any, Literal

import pytest

from tests.messages import messages
from xformer_kit.registry import REQUIRED, Context, mismatch, type_name
from xformer_kit.registry.option_types import nest


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (int, "int"),
        (int | None, "int | null"),
        (Literal["a", "b"], "a | b"),
        (list[str], "list of str"),
        (list[str] | None, "list of str | null"),
        (dict[str, int], "mapping of int"),
        (dict, "mapping"),
    ],
)
def test_types_have_names_in_plain_english(annotation, name):
    assert type_name(annotation) == name


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (float, 3),
        (float | None, None),
        (bool, False),
        (list[int], [1, 2]),
        (tuple[float, float], [0.9, 0.99]),
        (Literal[1, 2], 2),
        (dict, {}),
        (dict[str, int], {"a": 1}),
        (Any, object()),
        (int, REQUIRED),
        (list[str] | None, ["a"]),
    ],
)
def test_a_value_that_fits(annotation, value):
    assert messages(mismatch(annotation, value, "x", Context())) == []


@pytest.mark.parametrize(
    ("annotation", "value", "sentence"),
    [
        (float, "1", "x: must be a number; got '1'."),
        (float, True, "x: must be a number; got true."),
        (float | None, float("inf"), "x: must be a finite number; got inf."),
        (bool, 1, "x: must be true or false; got 1."),
        (str, 1, "x: must be a text; got 1."),
        (list[int], ["a"], "x[0]: must be a whole number; got 'a'."),
        (tuple[float, float], [0.9], "x: must be a list of 2 values; got [0.9]."),
        (Literal[1, 2], True, "x: no choice is called true. Known: 1, 2."),
        (dict, 3, "x: must be a mapping; got 3."),
    ],
)
def test_a_value_that_does_not_fit(annotation, value, sentence):
    assert messages(mismatch(annotation, value, "x", Context())) == [sentence]


@pytest.mark.parametrize("annotation", [float, float | None, float | Literal["by_layer"]])
def test_a_whole_number_for_a_float_is_one_that_a_float_holds(annotation):
    assert messages(mismatch(annotation, 10**308, "x", Context())) == []
    (message,) = messages(mismatch(annotation, 10**309, "x", Context()))
    assert message.startswith("x: must be a finite number; got 1000")


@pytest.mark.parametrize(
    ("annotation", "value", "built"),
    [
        (float, 2, 2.0),
        (float | Literal["by_layer"] | None, 2, 2.0),
        (list[float], [0, 0.5], [0.0, 0.5]),
        (tuple[float, ...], [1], (1.0,)),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (float, True, True),
        (int, 2, 2),
        (int | float, 2, 2),
        (Any, 2, 2),
    ],
)
def test_a_whole_number_for_a_float_becomes_one(annotation, value, built):
    assert repr(nest(annotation, value)) == repr(built)
