"""List the components that a config can name: all kinds, one kind with the options of its
components, or one component.
"""

import re
from typing import Any

from tasks.cli.command import (
    console,
    has_width,
    import_files,
    print_indented,
    print_json,
    print_wrapped,
    styled,
    table,
)
from xformer_kit.registry import ConfigError
from xformer_kit.text.command_lines import train, xformer

SUMMARY = "list the components that a config can name, with their options"
EXAMPLES = """examples:
  xformer components                        every kind with its components
  xformer components attn                   every attention with its options, formula and paper
  xformer components attn multi_head        one component, also attn.multi_head
  xformer components --json                 {kind: {name: {option: {"type": ..., "default": ...}}}}
  xformer components attn --components my_components.py"""
OPTIONS = {
    "kind? KIND": "attn, mask, position, norm, placement, ffn, kernel, ...",
    "name? NAME": "one component of the kind",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    from xformer_kit.config import GROUPS, MAPPING_GROUPS, NESTED_GROUPS
    from xformer_kit.inspect import components
    from xformer_kit.inspect.components import in_order

    import_files(args.components)
    groups = GROUPS | NESTED_GROUPS | MAPPING_GROUPS
    inside = re.match(r"(.+)[.=](\w+)$", args.kind or "")  # attn.multi_head
    if inside and args.kind not in groups and inside[1] in groups and not args.name:
        args.kind, args.name = inside[1], inside[2]
    registries = [components.find_kind(args.kind, groups)] if args.kind else list(groups.values())
    if args.name and args.name not in registries[0]:
        registry = registries[0]
        raise ConfigError(registry.unknown(args.name).at(registry.group))
    if args.json:
        print_json(
            {
                kind: {n: options for n, options in named.items() if args.name in (None, n)}
                for kind, named in components.table(registries).items()
            }
        )
    elif args.kind:
        _print_kind(registries[0], [args.name] if args.name else in_order(registries[0]))
    else:
        _print_all_kinds(registries)
    return 0


def _print_all_kinds(registries: list[Any]) -> None:
    """Print one line per component; a terminal cuts long lines at its edge."""
    from rich.text import Text

    from xformer_kit.inspect import components
    from xformer_kit.inspect.components import in_order

    output = console()
    crop = has_width(output)
    kind_width = max(len(registry.group) for registry in registries)
    name_width = max(len(name) for registry in registries for name in registry)
    for registry in registries:
        for i, name in enumerate(in_order(registry)):
            line = Text().append(f"{'' if i else registry.group:{kind_width}}  ", "bold cyan")
            line.append(f"{name:{name_width}}  ", "bold").append(components.summary(registry[name]))
            output.print(line, no_wrap=True, overflow="ellipsis" if crop else "ignore", crop=crop)
        print()
    print_wrapped((f"The options of a kind: {xformer('components', 'attn')}", "dim"))
    print_wrapped((f"To choose: {train('attn=multi_head', 'attn.heads=4')}", "dim"))


def _print_kind(registry: Any, names: list[str]) -> None:
    """Print docstring, other names and options of each of these components."""
    from xformer_kit.inspect import components
    from xformer_kit.objective import OBJECTIVES, trained_stacks

    for i, name in enumerate(names):
        if i:
            print()
        group, _, choice = registry.override_for(name).rpartition("=")
        print_wrapped((f"{group}=", "bold cyan"), (choice, "bold"))
        if doc := components.doc(registry[name]):
            print_indented(styled(doc, ""))
        if synonyms := components.aliases(registry, name):
            print_indented(styled(f"also called {', '.join(synonyms)}"))
        if registry is OBJECTIVES:
            print_indented(styled(f"trains models of {trained_stacks(registry[name])}"))
        rows = components.option_rows(registry, name)
        if not rows:
            print_indented(styled("no options"))
            continue
        page = table(
            ((f"{group}.{row.name}", *row[1:]) for row in rows),
            ("option", "type", "default", "unit or meaning"),
            styles=("bold", "", "green"),
            no_wrap=(0, 2),
        )
        page.columns[1].max_width = 30
        print_indented(page, lines_above=1)
