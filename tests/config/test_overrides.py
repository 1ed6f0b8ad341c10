"""Overrides in the form that Hydra composes."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from xformer_kit.config.line.overrides import expand, value_text

VALUES = [
    *(0, -3, 1.5, 1e-8, True, False, None, "", "rotary", "a.b/c-d", "a b", "x,y", "[1]", "{a: 1}"),
    *("true", "Null", "nan", "inf", "32", "1e3", "it's", "C:\\a b\\", "a=b", "$x", "ä"),
    *([1, "two", [None]], {"name": "linear", "factor": 2.0, "of": ["a b", {"deep": "1"}]}, {}),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_read_back_as_it_was(value):
    read = OverridesParser.create().parse_override(f"x={value_text(value)}").value()
    assert repr(read) == repr(value)


def test_texts_in_a_mapping_stay_texts():
    assert expand(["data={name: tsv, path: 'a, b.tsv', header: '1'}"]) == [
        "data=tsv",
        "data.path='a, b.tsv'",
        "data.header='1'",
    ]
