"""A config that is Python: nested mappings of differences, read as the overrides of a line."""

from collections.abc import Mapping
from typing import Any

from xformer_kit.config.line.overrides import REQUIRED_GROUPS
from xformer_kit.config.options.groups import GROUPS
from xformer_kit.config.options.plain_data import KEY
from xformer_kit.plan import STACKS
from xformer_kit.text.command_lines import override_text


def mapping_words(node: Mapping[str, Any], path: str = "") -> list[str]:
    """Returns the overrides of nested mappings of plain data, one for each value that is no
    mapping, or an empty one: {"attn": {"heads": 8}} is attn.heads=8.

    A group with a `name` is chosen by it, before its options are set.
    """
    words = []
    for key, value in node.items():
        at = f"{path}.{key}".lstrip(".")
        if not isinstance(value, Mapping) or not value or not all(map(KEY.fullmatch, value)):
            words.append(f"{at}={override_text(value)}")
            continue
        if at in REQUIRED_GROUPS and "name" in value:
            words.append(f"{at}={override_text(value['name'])}")
            value = {option: item for option, item in value.items() if option != "name"}
        words += mapping_words(value, at)
    return words


def of_its_stacks(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the mapping; if it is a complete config, as `compose` returns, with the choice of
    `model` that has no other stacks.
    """
    model = node.get("model")
    if not isinstance(model, Mapping) or not GROUPS.keys() <= node.keys():
        return node
    return {**node, "model": {"name": "_".join(s for s in STACKS if s in model), **model}}
