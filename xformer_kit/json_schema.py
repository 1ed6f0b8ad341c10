"""The JSON Schema (draft 2020-12) of the YAML files of a config: experiments, presets, studies and
whole configs. Editors complete and check files with it, and programs the configs that they write.

It is made from the registries, so it has the components that are registered when it is made. A
component is a name, or a mapping with its options; without `name` it has the options of any
component of its kind, since a file may set options of a component that is chosen elsewhere. Ranges,
and options that exclude each other, are not in the schema: they are checked when a config is
composed.
"""

from xformer_kit.config import GROUPS, MAPPING_GROUPS, NESTED_GROUPS
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.config.options.trainer_schema import OPTIONS as TRAINER
from xformer_kit.inspect.components import in_order, summary
from xformer_kit.plan import KINDS, STACKS
from xformer_kit.registry import Option, Registry
from xformer_kit.registry.option_schemas import (
    DEFINITIONS,
    LATER,
    NULL,
    Schema,
    any_of,
    mapping_schema,
    option_schema,
    option_schemas,
    ref,
    type_schema,
)
from xformer_kit.study.study_node import DESIGNS
from xformer_kit.study.study_node import SETTINGS as STUDY

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SECTIONS = ("ema", "checkpoints", "lora")  # nodes of settings


def config_schema() -> Schema:
    """Returns the schema of a config, or of a file with differences."""
    properties: Schema = {"defaults": _defaults(), "name": {"type": "string"}}
    properties |= option_schemas(SETTINGS.options("run"))
    stacks = dict.fromkeys(STACKS, ref("stack"))
    properties |= {"model": mapping_schema(option_schemas(SETTINGS.options("model")) | stacks)}
    properties |= {group: ref(group) for group in GROUPS}
    properties |= {"trainer": mapping_schema(option_schemas(TRAINER))}
    properties |= {key: _settings(key) for key in SECTIONS}
    properties |= {"init_from": {"if": {"type": "string"}, "else": _settings("init_from")}}
    properties |= {key: _mapping(registry) for key, registry in MAPPING_GROUPS.items()}
    properties |= {"study": _study(), "hydra": {"type": "object"}}
    properties |= {"components": type_schema(list[str] | str | None)}
    properties |= {"resume": type_schema(str | None)}
    definitions = DEFINITIONS | {"stack": _stack()}
    for registry in (*GROUPS.values(), *NESTED_GROUPS.values(), DESIGNS):
        definitions |= _definitions(registry)
    title = {"$schema": DIALECT, "title": "A config of xformer_kit"}
    return title | mapping_schema(properties) | {"$defs": definitions}


def _definitions(registry: Registry) -> dict[str, Schema]:
    """Returns the schema of a kind, that of its names, and of each component with its options."""
    group, nodes, branches = registry.group, dict[str, Schema](), []
    settings: Schema = {}  # next to the options of a component
    if group in SETTINGS:
        nodes[f"{group}-settings"] = _settings(group)
        keys = SETTINGS.options(group)
        settings = {key: ref(f"{group}-settings/properties/{key}") for key in keys}
    names = _names(registry)
    for name in in_order(registry):
        called = {"enum": [name, *(other for other, own in names.items() if own == name != other)]}
        node = mapping_schema({"name": called} | settings | option_schemas(registry.options(name)))
        nodes[f"{group}={name}"] = {"description": summary(registry[name])} | node
        branches.append({"if": {"properties": {"name": called}}, "then": ref(f"{group}={name}")})
    known = ref(f"{group}-names")
    of_any = {"name": any_of([known, LATER])} | settings | _merged(registry)
    if group == "logger":  # several: {NAME: options}
        of_any |= _mapping(registry)["properties"]
    # By conditions, since an anyOf of components has its faults at the node, not at an option.
    node = {
        "properties": {"name": any_of([known, LATER])},
        "if": {"required": ["name"]},
        "then": {"allOf": branches},
        "else": mapping_schema(of_any),
    }
    forms = [known, LATER, {"type": "object"}, *[ref("boolean")] * bool(registry.switch)]
    choice: Schema = {"anyOf": forms, "if": {"type": "object"}, "then": node}
    texts = [{"const": name, "description": summary(registry[own])} for name, own in names.items()]
    return {group: choice, f"{group}-names": {"anyOf": texts}} | nodes


def _names(registry: Registry) -> dict[str, str]:
    """Returns {name that a config may use: own name of the component}, own names first."""
    others = sorted({*registry.also_called} & {*registry.aliases})
    own = {name: name for name in in_order(registry)}
    return own | {other: registry.aliases[other].name for other in others}


def _merged(registry: Registry) -> dict[str, Schema]:
    """Returns the options of any component of a kind. Different meanings of one name are described
    with the first component that has them; a default is that of all.
    """
    found: dict[str, dict[str, Option]] = {}
    for name in in_order(registry):
        for key, option in registry.options(name).items():
            found.setdefault(key, {})[name] = option
    return {key: _of_any(options) for key, options in found.items()}


def _of_any(options: dict[str, Option]) -> Schema:
    """Returns the schema of any of several options of one name, {component: option}."""
    meanings: dict[str, str] = {}
    for name, option in options.items():
        meanings.setdefault(option.meaning, name)
    texts = [f"{name}: {text}" if len(meanings) > 1 else text for text, name in meanings.items()]
    defaults = [option_schema(option).get("default", ...) for option in options.values()]
    shared = {"description": " | ".join(texts)}
    if defaults[0] is not ... and all(default == defaults[0] for default in defaults):
        shared["default"] = defaults[0]
    return shared | any_of([type_schema(option.type) for option in options.values()])


def _stack() -> Schema:
    """Returns the schema of a stack: settings, and differences from the shared components."""
    parts = {kind: ref(kind) for kind in KINDS}
    parts |= {"cross": any_of([ref("attn"), NULL]), "layout": {"type": ["array", "null"]}}
    variants = {"type": ["object", "null"], "additionalProperties": mapping_schema(parts)}
    settings = option_schemas(SETTINGS.options("stack")) | {"variants": variants}
    return mapping_schema(settings | parts, nullable=True)


def _study() -> Schema:
    options = option_schemas(STUDY.options("study"))
    for key in ("budget", "stop"):
        options[key] = mapping_schema(option_schemas(STUDY.options(key)), nullable=True)
    return mapping_schema(options, nullable=True)


def _settings(name: str) -> Schema:
    return mapping_schema(option_schemas(SETTINGS.options(name)))


def _mapping(registry: Registry) -> Schema:
    """Returns the schema of {name: options}; null leaves a component out."""
    nodes = {name: option_schemas(registry.options(own)) for name, own in _names(registry).items()}
    return mapping_schema({name: mapping_schema(node, True) for name, node in nodes.items()})


def _defaults() -> Schema:
    """Returns the schema of a list of defaults. Its names may be those of files of the user's own,
    so that known ones are completed and others are valid.
    """
    choices = {f"override /{group}": {"anyOf": [ref(f"{group}-names"), {}]} for group in GROUPS}
    return {"type": "array", "items": {"type": ["object", "string"], "properties": choices}}
