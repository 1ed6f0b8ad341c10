"""In what do configs differ?"""

from xformer_kit.config.saved.difference import as_literal, differing, flat


def test_of_a_component_that_is_another_only_the_name_is_said():
    one = {"model": {"dim": 8, "layers": 2}, "ffn": {"name": "mlp", "width": 4}}
    two = {"model": {"dim": 8, "layers": 3}, "ffn": {"name": "glu", "width": 5, "bias": True}}
    assert dict(flat(one)) == {"model.dim": 8, "model.layers": 2, "ffn.name": "mlp", "ffn.width": 4}
    assert differing([dict(flat(one)), dict(flat(two))]) == ["model.layers", "ffn.name"]


def test_options_of_the_same_component_are_said_and_so_is_what_one_lacks():
    one, two, three = (
        {"ffn.name": "mlp", "ffn.width": 4},
        {"ffn.name": "mlp", "ffn.width": 5},
        {"ffn.name": "mlp"},
    )
    assert differing([one, two]) == differing([one, three]) == ["ffn.width"]
    assert differing([one, dict(one)]) == differing([one]) == differing([]) == []


def test_values_as_a_command_line_has_them():
    assert [as_literal(value) for value in (None, True, False, 0, 1, "x")] == [
        "null",
        "true",
        "false",
        0,
        1,
        "x",
    ]
