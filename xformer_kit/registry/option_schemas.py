"""JSON Schemas of options: of their types, with the meaning as description and the default.
Wherever a value is, an interpolation `${...}` and `???` are valid too.
"""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from xformer_kit.registry.entries import Option
from xformer_kit.registry.option_types import REQUIRED, nested, to_plain

Schema = dict[str, Any]
PATTERN = r"\$\{|^\?\?\?$"
LATER = {"type": "string", "pattern": PATTERN}  # an interpolation, or a value that is set elsewhere
# Numbers that some readers of YAML return as a text: 1_024 those of YAML 1.2, 1e-3 PyYAML.
NUMBER = {"type": "string", "pattern": rf"{PATTERN}|^[-+]?\d[\d_.]*(_|[eE][-+]?)[\d.]+$"}
NULL = {"type": "null"}
# What the schemas of options refer to, as $defs.
DEFINITIONS: Schema = {
    "integer": {"anyOf": [{"type": "integer"}, NUMBER]},
    "number": {"anyOf": [{"type": "number"}, NUMBER]},
    "boolean": {"anyOf": [{"type": "boolean"}, LATER]},
}


def ref(name: str) -> Schema:
    """Returns a reference to one of $defs."""
    return {"$ref": f"#/$defs/{name}"}


BASIC: dict[Any, Schema] = {int: ref("integer"), float: ref("number"), bool: ref("boolean")}
BASIC |= {str: {"type": "string"}, NoneType: NULL}


def mapping_schema(properties: Schema, nullable: bool = False) -> Schema:
    """Returns the schema of a mapping with no other keys, or of an interpolation."""
    types = ["object", "string", *["null"] * nullable]
    node = {"type": types, "pattern": PATTERN, "properties": properties}
    return node | {"additionalProperties": False}


def option_schemas(options: Mapping[str, Option]) -> dict[str, Schema]:
    """Returns the schema of each option."""
    return {key: option_schema(option) for key, option in options.items()}


def option_schema(option: Option) -> Schema:
    """Returns the schema of an option; one that is required has no default."""
    default = to_plain(option.default)
    notes = {"description": option.meaning} if option.meaning else {}
    return notes | ({} if default == REQUIRED else {"default": default}) | type_schema(option.type)


def type_schema(annotation: Any) -> Schema:
    """Returns the schema of the values of a type; of a component, a reference to its kind."""
    return any_of(_members(annotation))


def any_of(schemas: list[Schema]) -> Schema:
    """Returns the schema of values that one of these schemas has."""
    members = [m for s in schemas for m in (s["anyOf"] if s.keys() == {"anyOf"} else [s])]
    found = [member for i, member in enumerate(members) if member not in members[:i]]
    return found[0] if len(found) == 1 else {"anyOf": found}


def _members(annotation: Any) -> list[Schema]:
    """Returns the schemas of which a value of this type has one."""
    origin, args = get_origin(annotation), get_args(annotation)
    if (registry := nested(annotation)) is not None:
        return [ref(registry.group)]
    if origin in (Union, UnionType):
        return [member for arg in args for member in _members(arg)]
    if origin is Literal:
        return [{"enum": list(args)}, LATER]
    if (origin or annotation) in (list, tuple):
        is_fixed = origin is tuple and args[1:] != (...,)
        count = {"minItems": len(args), "maxItems": len(args)} if is_fixed else {}
        items = {"items": type_schema(args[0])} if args else {}
        return [{"type": ["array", "string"], "pattern": PATTERN} | items | count]
    if (origin or annotation) is dict:
        values = {"additionalProperties": type_schema(args[1])} if args else {}
        return [{"type": ["object", "string"], "pattern": PATTERN} | values]
    return [BASIC.get(annotation, {})]
