"""Assertions that a component outside of the model breaks a law of its kind, or keeps all."""

import pytest
from breaking import registered

from xformer_kit.config import GROUPS
from xformer_kit.laws.kinds import KIND_LAWS, check_laws_of_kind
from xformer_kit.laws.kinds.options import default_node
from xformer_kit.laws.kinds.registry import Component, KindLawBroken


def broken_kind_test(kind, arguments):
    """Returns a test that each of these (law, component, match) breaks the law."""
    ids = [f"{law}-{component.__name__}" for law, component, _ in arguments]

    @pytest.mark.parametrize(("law", "component", "match"), arguments, ids=ids)
    def test(law, component, match):
        with registered(GROUPS[kind], component):
            checked = Component(kind, default_node(kind, "broken"), law)
            with pytest.raises(KindLawBroken, match=match) as caught:
                KIND_LAWS[kind][law](checked)
        assert f"the law '{law}' is broken: " in str(caught.value)
        assert f"Seen with: {kind}=broken" in str(caught.value)

    return test


def assert_keeps_all(kind, component):
    """Asserts that no law of the kind is broken, and that each is kept."""
    with registered(GROUPS[kind], component):
        outcomes = check_laws_of_kind(kind, "broken")
    assert [(one.law, one.verdict) for one in outcomes] == [(law, "ok") for law in KIND_LAWS[kind]]
