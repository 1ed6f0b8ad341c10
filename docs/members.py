"""The public members of a class, read from its source: signatures, types, comments, docstrings."""

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

from xformer_kit.registry.signature import line_comments, meaning

ENTRY = re.compile(r"^\s*`?(\w+)`?: ", re.MULTILINE)  # an attribute in the docstring of a class


class Member(NamedTuple):
    """A method, property, field or class attribute of a class."""

    name: str
    shown: str  # signature or type
    text: str  # docstring or comment, on one line
    default: str = ""
    is_method: bool = False
    is_abstract: bool = False  # whether its body only raises NotImplementedError


def members(cls: type) -> dict[str, Member]:
    """Returns the public members of a class and of its bases in the package, in their order. One
    without a docstring has that of the base.
    """
    found: dict[str, Member] = {}
    for base in reversed(package_bases(cls)):
        for member in own_members(base).values():
            text = member.text or getattr(found.get(member.name), "text", "")
            found[member.name] = member._replace(text=text)
    return found


def package_bases(cls: type) -> list[type]:
    """Returns the class and its bases that are classes of the package."""
    return [one for one in inspect.getmro(cls) if one.__module__.startswith("xformer_kit.")]


def own_members(cls: type) -> dict[str, Member]:
    """Returns the public members that the class itself defines, or describes in its docstring."""
    source = textwrap.dedent(inspect.getsource(cls))
    tree, comments = ast.parse(source).body[0], line_comments(source)
    found: dict[str, Member] = {}
    for node in tree.body if isinstance(tree, ast.ClassDef) else ():
        member = (
            method(node) if isinstance(node, ast.FunctionDef) else _attribute(cls, node, comments)
        )
        if member is not None:
            found[member.name] = member
    for name in ENTRY.findall(inspect.getdoc(cls) or ""):
        found.setdefault(name, Member(name, "", meaning(cls, name)))
    return found


def _attribute(cls: type, node: ast.stmt, comments: Mapping[int, str]) -> Member | None:
    annotated = node if isinstance(node, ast.AnnAssign) else None
    (target,) = [annotated.target] if annotated else getattr(node, "targets", None) or [None]
    if not isinstance(target, ast.Name) or target.id.startswith("_"):
        return None
    kind = ast.unparse(annotated.annotation).strip("'") if annotated else ""
    text = meaning(cls, target.id) or comments.get(node.lineno, "")
    value = getattr(node, "value", None)
    default = "" if value is None else ast.unparse(value)
    return Member(target.id, kind, text, default)


def method(node: ast.FunctionDef) -> Member | None:
    """Returns a function or method with its signature without self; None if it is private."""
    decorators = [ast.unparse(one) for one in node.decorator_list]
    text, name = one_line(ast.get_docstring(node)), node.name
    returned = ast.unparse(node.returns).strip("'") if node.returns else ""
    bound = bool(node.args.args) and node.args.args[0].arg in ("self", "cls")
    takes = ast.unparse(node.args)
    if bound:
        takes = re.sub(r"^(self|cls)(, )?", "", takes)
    if name.startswith("_") and name != "__call__" and not (name == "__init__" and takes):
        return None
    if "property" in decorators:
        return Member(name, returned, text)
    marks = [f"@{one} " for one in decorators if one in ("classmethod", "staticmethod")]
    arrow = f" -> {returned}" if returned not in ("", "None") else ""
    raises = ast.unparse(node.body[-1]) == "raise NotImplementedError"
    return Member(name, f"{''.join(marks)}{name}({takes}){arrow}", text, "", True, raises)


def function(item: Any) -> Member | None:
    """Returns a function."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(item))).body
    return method(node) if isinstance(node, ast.FunctionDef) else None


def type_names(module: Any) -> Mapping[str, Member]:
    """Returns the names of types that a module assigns, with the comment at each."""
    source = inspect.getsource(module)
    comments, found = line_comments(source), dict[str, Member]()
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            text = comments.get(node.lineno, "")
            found[name] = Member(name, ast.unparse(node.value), text)
    return found


def one_line(doc: str | None) -> str:
    """Returns a docstring on one line."""
    return " ".join((doc or "").split())
