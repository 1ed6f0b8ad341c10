"""List the components that a config can name: every kind, one kind with all options, or one
component.
"""

from typing import Any

from tasks.cli.command import (
    console,
    cuts,
    import_files,
    indented,
    print_json,
    say_wrapped,
    styled,
    table,
)

SUMMARY = "list the components that a config can name, with their options"
EXAMPLES = """examples:
  xformer components                        every kind with its components
  xformer components attn                   every attention with its options, formula and paper
  xformer components attn multi_head        one component
  xformer components --json                 {kind: {name: {option: {"type": ..., "default": ...}}}}
  xformer components attn --components my_components.py"""
OPTIONS = {
    "kind? KIND": "attn, mask, position, norm, placement, ffn, kernel, ...",
    "name? NAME": "one component of the kind",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    from xformer_kit.config import GROUPS, INNER, MAPPING_GROUPS
    from xformer_kit.inspect import components

    import_files(args.components)
    groups = GROUPS | INNER | MAPPING_GROUPS
    registries = [components.find_kind(args.kind, groups)] if args.kind else list(groups.values())
    if args.name:
        registries[0][args.name]  # an unknown name is answered with the nearest
    if args.json:
        table = components.table(registries)
        print_json(
            {
                kind: {n: o for n, o in named.items() if args.name in (None, n)}
                for kind, named in table.items()
            }
        )
    elif args.kind:
        _one_kind(registries[0], [args.name] if args.name else list(registries[0]))
    else:
        _every_kind(registries)
    return 0


def _every_kind(registries: list[Any]) -> None:
    """One line for each component; a terminal cuts it at its edge, a pipe gets all of it."""
    from rich.text import Text

    from xformer_kit.inspect import components

    screen = console()
    left = max(len(registry.group) for registry in registries)
    middle = max(len(name) for registry in registries for name in registry)
    for registry in registries:
        for first, name in enumerate(registry):
            line = Text().append(f"{'' if first else registry.group:{left}}  ", "bold cyan")
            line.append(f"{name:{middle}}  ", "bold").append(components.summary(registry[name]))
            screen.print(
                line,
                no_wrap=True,
                overflow="ellipsis" if cuts(screen) else "ignore",
                crop=cuts(screen),
            )
        screen.print()
    for hint in (
        "The options of a kind: xformer components attn",
        "To choose: python train.py attn=multi_head attn.heads=4",
    ):
        say_wrapped(screen, (hint, "dim"))


def _one_kind(registry: Any, names: list[str]) -> None:
    from xformer_kit.inspect import components

    screen = console()
    for i, name in enumerate(names):
        if i:
            screen.print()
        group, _, chosen = registry.override_for(name).rpartition("=")
        say_wrapped(screen, (f"{group}=", "bold cyan"), (chosen, "bold"))
        if doc := components.doc(registry[name]):
            indented(screen, styled(_flowing(doc), ""))
        if others := components.names_for(registry, name):
            indented(screen, styled(f"also called {', '.join(others)}"))
        found = components.rows(registry, name)
        if not found:
            indented(screen, styled("no options"))
            continue
        page = table("option", "type", "default", "unit or meaning", padding=(0, 2, 0, 0))
        for column, style in ((0, "bold"), (2, "green")):
            page.columns[column].style, page.columns[column].no_wrap = style, True
        page.columns[1].max_width = 30
        for row in found:
            page.add_row(f"{group}.{row.name}", *row[1:])
        indented(screen, page, above=1)


def _flowing(doc: str) -> str:
    """Paragraphs without the line ends of the source; indented lines and lists keep theirs."""
    paragraphs = []
    for paragraph in doc.split("\n\n"):
        lines = paragraph.split("\n")
        plain = not any(line.startswith((" ", "- ", "* ")) for line in lines)
        paragraphs.append(" ".join(lines) if plain else paragraph)
    return "\n\n".join(paragraphs)
