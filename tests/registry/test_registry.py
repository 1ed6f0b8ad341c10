"""The signature of a component is the schema of its config."""

from dataclasses import dataclass
from typing import Literal

import pytest

from tests.messages import messages
from xformer_kit.registry import (
    REQUIRED,
    ConfigError,
    Context,
    Fault,
    Options,
    Registry,
    UnknownValueError,
    at_least,
    did_you_mean,
    in_range,
)
from xformer_kit.registry.signature import meaning


class Hat:
    """Base of the parts of this file."""


class HatArguments:
    """What is passed to a hat."""

    dim: int
    depth: int


@pytest.fixture
def hats() -> Registry:
    registry = Registry("hat", caller_arguments=HatArguments, base=Hat, group="wardrobe")

    @registry.register("top", also_called=("cylinder", "stovepipe"))
    class Top(Hat):
        """A tall hat.

        felt: what it is made of
        """

        def __init__(
            self,
            dim: int,
            *,
            height: int = 7,  # inches
            felt: Literal["beaver", "rabbit"] = "beaver",
            brim: float | None = None,  # inches; null is a quarter of height
        ):
            self.dim, self.height, self.felt, self.brim = dim, height, felt, brim

        @classmethod
        def check(cls, options, context):
            yield from at_least(options, "inch", height=1)
            yield from in_range(options, brim=(0, 3))

    @registry.register("stack")
    @dataclass(frozen=True)
    class Stack(Hat):
        """Hats on hats."""

        of: tuple[Hat, ...]  # hats, from below

    @registry.register("bare")
    class Bare(Hat):
        """No hat."""

    return registry


def faults(registry, node, **context):
    return messages(registry.faults(node, "wardrobe", Context(**context)))


# What a signature says.


def test_options_are_the_keyword_only_parameters(hats):
    assert list(hats.options("top")) == ["height", "felt", "brim"]
    height = hats.options("top")["height"]
    assert (height.type, height.default, height.meaning) == (int, 7, "inches")
    assert hats.options("bare") == {}


def test_a_meaning_is_the_comment_behind_the_option_or_a_line_of_the_docstring(hats):
    assert hats.options("top")["brim"].meaning == "inches; null is a quarter of height"
    assert hats.options("top")["felt"].meaning == "what it is made of"
    of = hats.options("stack")["of"]
    assert (of.type, of.default, of.meaning) == (tuple[Hat, ...], REQUIRED, "hats, from below")


def test_a_comment_above_an_option_is_its_description():
    def component(
        *,
        # of a long name
        a: int = 1,
        # of that
        b: float = 0.5,
        c: str = "c",
        # whether
        d: bool = False,
    ):
        """A component."""

    class Data:
        # inches
        e: int | None = None
        f: int = 2  # type: ignore[assignment]  # feet

    assert [meaning(component, name) for name in "abcd"] == [
        "of a long name",
        "of that",
        "",
        "whether",
    ]
    assert [meaning(Data, name) for name in "ef"] == ["inches", "feet"]


def test_defaults_are_a_complete_node(hats):
    assert hats.defaults("top") == {"name": "top", "height": 7, "felt": "beaver", "brim": None}
    assert hats.defaults("stack") == {"name": "stack", "of": REQUIRED}


def test_a_component_gets_what_it_asks_for_and_no_more(hats):
    hat = hats.create({"name": "top", "height": 9}, dim=3, depth=4)
    assert (hat.dim, hat.height, hat.felt) == (3, 9, "beaver")
    assert type(hats.create("bare", dim=3)).__name__ == "Bare"


def test_nested_components_are_built(hats):
    stack = hats.create(
        {"name": "stack", "of": [{"name": "bare"}, {"name": "stack", "of": [{"name": "bare"}]}]}
    )
    assert isinstance(stack.of, tuple)
    assert [type(hat).__name__ for hat in (*stack.of, *stack.of[1].of)] == ["Bare", "Stack", "Bare"]


def test_a_tuple_default_is_a_list_in_the_config():
    registry = Registry("pair")

    @registry.register("betas")
    def betas(*, betas: tuple[float, float] = (0.9, 0.99)):
        return betas

    assert registry.defaults("betas") == {"name": "betas", "betas": [0.9, 0.99]}
    assert registry.create({"name": "betas", "betas": [0.5, 0.6]}) == (0.5, 0.6)


def test_a_name_taken_twice_is_refused(hats):
    with pytest.raises(ConfigError) as caught:
        hats.register("top")(Hat)
    assert str(caught.value) == "hat 'top': is registered twice. Give one of them another name."


def test_forgetting_a_module_takes_its_components_and_their_other_names_back(hats):
    hats.forget(__name__)
    assert dict(hats) == {}
    assert hats.also_called == {}


# What it answers to a config. Whole sentences.


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        ("topp", "wardrobe: no hat is called 'topp'. Did you mean 'top'? Known: bare, stack, top."),
        ("zzz", "wardrobe: no hat is called 'zzz'. Known: bare, stack, top."),
        ("cylinder", "wardrobe: 'cylinder' is called 'top' here."),
        (3, "wardrobe: must name a hat; got 3. Known: bare, stack, top."),
        (None, "wardrobe: must name a hat; got null. Known: bare, stack, top."),
        ({"height": 3}, "wardrobe: must name a hat; got {height: 3}. Known: bare, stack, top."),
        (
            {"name": "top", "hight": 3},
            (
                "wardrobe.hight: hat 'top' has no option 'hight'. Did you mean 'height'? It has:"
                " height, felt, brim."
            ),
        ),
        (
            {"name": "bare", "brim": 1},
            "wardrobe.brim: hat 'bare' has no option 'brim'. It has no options. Try wardrobe=top.",
        ),
        (
            {"name": "stack", "of": [], "fellt": 1},
            ("wardrobe.fellt: hat 'stack' has no option 'fellt'. It has: of. Leave it out."),
        ),
        (
            {"name": "bare", "x": 1},
            "wardrobe.x: hat 'bare' has no option 'x'. It has no options. Leave it out.",
        ),
        (
            {"name": "top", "height": "tall"},
            "wardrobe.height: must be a whole number; got 'tall'. Try 7.",
        ),
        (
            {"name": "top", "height": 7.5},
            "wardrobe.height: must be a whole number; got 7.5. Try 7.",
        ),
        (
            {"name": "top", "height": True},
            "wardrobe.height: must be a whole number; got true. Try 7.",
        ),
        ({"name": "top", "brim": "wide"}, "wardrobe.brim: must be a number or null; got 'wide'."),
        (
            {"name": "top", "felt": "rabit"},
            (
                "wardrobe.felt: no choice is called 'rabit'. Did you mean 'rabbit'? Known: beaver,"
                " rabbit."
            ),
        ),
        ({"name": "top", "height": 0}, "wardrobe.height: must be at least 1 inch; got 0."),
        ({"name": "top", "brim": 3}, "wardrobe.brim: must be at least 0 and below 3; got 3."),
        (
            {"name": "stack"},
            "wardrobe.of: hat 'stack' needs this option. Give it hats, from below.",
        ),
        ({"name": "stack", "of": 3}, "wardrobe.of: must be a list of hat; got 3."),
        (
            {"name": "stack", "of": [{"name": "bare"}, {"name": "top", "height": 0}]},
            "wardrobe.of[1].height: must be at least 1 inch; got 0.",
        ),
        (
            {"name": "stack", "of": ["bear"]},
            (
                "wardrobe.of[0]: no hat is called 'bear'. Did you mean 'bare'? Known: bare, stack,"
                " top."
            ),
        ),
    ],
    ids=str,
)
def test_a_fault_is_one_whole_sentence(hats, node, sentence):
    assert faults(hats, node) == [sentence]


@pytest.mark.parametrize(
    "node",
    [
        "top",
        "bare",
        {"name": "top", "brim": 2},
        {"name": "top", "brim": None},
        {"name": "stack", "of": ["bare"]},
    ],
    ids=str,
)
def test_what_fits_has_no_fault(hats, node):
    assert faults(hats, node) == []


def test_all_faults_come_at_once(hats):
    assert len(faults(hats, {"name": "top", "hight": 3, "felt": "cat", "height": "x"})) == 3


def test_a_range_is_checked_beside_a_type_that_does_not_fit(hats):
    assert faults(hats, {"name": "top", "height": "x", "brim": 99}) == [
        "wardrobe.height: must be a whole number; got 'x'. Try 7.",
        "wardrobe.brim: must be at least 0 and below 3; got 99.",
    ]


def test_what_rests_on_an_option_at_fault_is_not_said():
    options = Options(("height",), height="x", brim=2)
    assert messages(at_least(options, height=1, brim=3)) == ["brim: must be at least 3; got 2."]
    assert options.felt is None
    with pytest.raises(UnknownValueError):
        options.height  # noqa: B018


def test_an_unknown_name_is_an_error_that_names_the_group(hats):
    with pytest.raises(
        ConfigError, match=r"^wardrobe: no hat is called 'fez'\. Known: bare, stack, top\.$"
    ):
        hats["fez"]


def test_a_key_next_to_the_options_is_proposed(hats):
    [sentence] = messages(
        hats.faults({"name": "bare", "bathc": 1}, "data", Context(), other_keys=["batch"])
    )
    assert (
        sentence
        == "data.bathc: hat 'bare' has no option 'bathc'. Did you mean 'batch'? It has: batch."
    )


def test_config_error_holds_every_fault():
    error = ConfigError([Fault("a", "one"), Fault("b", "two")])
    assert error.messages == ("a: one.", "b: two.")
    assert str(error) == "a: one.\nb: two."
    assert isinstance(error, ValueError)
    assert ConfigError(Fault("a", "one")).messages == ("a: one.",)


def test_nearest_says_nothing_where_nothing_is_near():
    assert did_you_mean("rotray", ["rotary"]) == "Did you mean 'rotary'? "
    assert did_you_mean("xyz", ["rotary"]) == ""


def test_true_and_false_choose_components_where_the_registry_says_which():
    class Light:
        pass

    lights = Registry("light", base=Light, switch=("off", "on"))
    lights.register("off")(Light)
    lights.register("on")(
        dataclass(frozen=True)(
            type("On", (Light,), {"__annotations__": {"power": int}, "power": 3})
        )
    )
    assert [lights.complete(node) for node in (False, True, "on")] == [
        {"name": "off"},
        *[{"name": "on", "power": 3}] * 2,
    ]
    assert lights.create(True).power == 3
    assert not [
        *messages(lights.faults(True, "light", Context())),
        *messages(lights.faults(False, "light", Context())),
    ]
    assert messages(Registry("lamp").faults(True, "lamp", Context())) == [
        "lamp: must name a lamp; got true. Known: ."
    ]


def test_an_option_that_a_component_lacks_is_none():
    assert Options(a=1).b is None
