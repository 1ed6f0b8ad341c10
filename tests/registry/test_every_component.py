"""What holds for every registered component: docstrings, meanings and names of options."""

import math
from types import UnionType
from typing import get_args

from tests.messages import messages
from xformer_kit.registry import methods


def test_every_option_has_a_meaning():
    from xformer_kit.config import GROUPS, NESTED_GROUPS

    without_meaning = [
        f"{group} {name}.{option}"
        for group, registry in (GROUPS | NESTED_GROUPS).items()
        for name in registry
        for option, found in registry.options(name).items()
        if not found.meaning
    ]
    assert without_meaning == []


def test_every_component_has_a_docstring():
    from xformer_kit.config import GROUPS

    for registry in GROUPS.values():
        for name, component in registry.items():
            assert (component.__doc__ or "").strip(), name


def test_no_option_has_the_name_of_a_setting_of_its_group():
    """data.seed is the order of examples: a corpus with an option of that name would hide it."""
    from xformer_kit.config import GROUPS
    from xformer_kit.config.options.settings import SETTINGS

    for group in ("data", "tokenizer"):
        settings = set(SETTINGS.options(group)) if group in SETTINGS else set()
        for name in GROUPS[group]:
            assert not settings & set(GROUPS[group].options(name)), name


def test_no_number_is_infinite():
    """One fault for NaN or infinity in each option that is a number, with nothing that follows."""
    from xformer_kit.config import GROUPS, NESTED_GROUPS
    from xformer_kit.config.options.groups import MAPPING_GROUPS
    from xformer_kit.config.options.settings import SETTINGS
    from xformer_kit.registry import REQUIRED, Context, format_value

    tried = 0
    for group, registry in (
        GROUPS | NESTED_GROUPS | MAPPING_GROUPS | {"settings": SETTINGS}
    ).items():
        for name in registry:
            numbers = [key for key, o in registry.options(name).items() if _is_number(o.type)]
            for key, value in ((k, v) for k in numbers for v in (math.nan, math.inf, -math.inf)):
                there = messages(registry.faults({"name": name}, group, Context(dim=64)))
                found = messages(
                    registry.faults({"name": name, key: value}, group, Context(dim=64))
                )
                expected = f"{group}.{key}: must be a finite number; got {value}."
                if (default := registry.options(name)[key].default) not in (None, REQUIRED):
                    expected += f" Try {format_value(default)}."
                assert [f for f in found if f not in there] == [expected], f"{group} {name}"
                tried += 1
    assert tried > 100


def _is_number(annotation):
    return annotation is float or (
        isinstance(annotation, UnionType) and float in get_args(annotation)
    )


def test_no_method_has_nearly_a_name_of_the_contract(monkeypatch):
    """Only a user's class is checked when it is registered."""
    monkeypatch.setattr(methods, "PACKAGE", "no package")
    from xformer_kit.config import GROUPS, NESTED_GROUPS
    from xformer_kit.extra import EXTRAS

    for kind, registry in (GROUPS | NESTED_GROUPS | {"extra": EXTRAS}).items():
        for name, component in registry.items():
            methods.check_methods(f"{kind} {name}", component, registry.base)
