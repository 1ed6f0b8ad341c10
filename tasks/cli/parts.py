"""List the parts that a config can name: every kind, one kind with all options, or one part."""

from typing import Any

from tasks.cli.command import console, cuts, import_files, print_json

SUMMARY = "list the parts that a config can name, with their options"
EXAMPLES = """examples:
  xformer parts                        every kind with its parts
  xformer parts attn                   every attention with its options, formula and paper
  xformer parts attn multi_head        one part
  xformer parts --json                 {kind: {name: {option: {"type": ..., "default": ...}}}}
  xformer parts attn --parts my_parts.py"""


def options(parser: Any) -> None:
    parser.add_argument(
        "kind",
        nargs="?",
        metavar="KIND",
        help="attn, mask, position, norm, placement, ffn, kernel, ...",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="one part of the kind")
    parser.add_argument("--json", action="store_true", help="print plain data")


def run(args: Any) -> int:
    from xformer_kit.config import GROUPS, INNER, MANY
    from xformer_kit.inspect import parts

    import_files(args.parts)
    groups = GROUPS | INNER | MANY
    registries = [parts.find_kind(args.kind, groups)] if args.kind else list(groups.values())
    if args.name:
        registries[0][args.name]  # an unknown name is answered with the nearest
    if args.json:
        table = parts.table(registries)
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
    """One line for each part; a terminal cuts it where it ends, a pipe gets all of it."""
    from rich.text import Text

    from xformer_kit.inspect import parts

    screen = console()
    left = max(len(registry.group) for registry in registries)
    middle = max(len(name) for registry in registries for name in registry)
    for registry in registries:
        for first, name in enumerate(registry):
            line = Text().append(f"{'' if first else registry.group:{left}}  ", "bold cyan")
            line.append(f"{name:{middle}}  ", "bold").append(parts.summary(registry[name]))
            screen.print(
                line,
                no_wrap=True,
                overflow="ellipsis" if cuts(screen) else "ignore",
                crop=cuts(screen),
            )
        screen.print()
    screen.print(Text("The options of a kind: xformer parts attn", "dim"))
    screen.print(Text("To choose: python train.py attn=multi_head attn.heads=4", "dim"))


def _one_kind(registry: Any, names: list[str]) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from xformer_kit.inspect import parts

    screen = console()
    for i, name in enumerate(names):
        if i:
            screen.print()
        group, _, chosen = registry.chosen(name).rpartition("=")
        screen.print(Text.assemble((f"{group}=", "bold cyan"), (chosen, "bold")))
        if doc := parts.doc(registry[name]):
            screen.print(Padding(Text(_flowing(doc)), (0, 0, 0, 2), expand=False))
        if others := parts.names_for(registry, name):
            screen.print(
                Padding(Text(f"also called {', '.join(others)}", "dim"), (0, 0, 0, 2), expand=False)
            )
        found = parts.rows(registry, name)
        if not found:
            screen.print(Padding(Text("no options", "dim"), (0, 0, 0, 2), expand=False))
            continue
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        for heading, style in (
            ("option", "bold"),
            ("type", ""),
            ("default", "green"),
            ("unit or meaning", ""),
        ):
            table.add_column(
                heading, style=style, no_wrap=heading in ("option", "default"), overflow="fold"
            )
        table.columns[1].max_width = 30
        for row in found:
            table.add_row(f"{group}.{row.name}", *row[1:])
        screen.print(Padding(table, (1, 0, 0, 2), expand=False))


def _flowing(doc: str) -> str:
    """Paragraphs without the line ends of the source; indented lines and lists keep theirs."""
    paragraphs = []
    for paragraph in doc.split("\n\n"):
        lines = paragraph.split("\n")
        plain = not any(line.startswith((" ", "- ", "* ")) for line in lines)
        paragraphs.append(" ".join(lines) if plain else paragraph)
    return "\n\n".join(paragraphs)
