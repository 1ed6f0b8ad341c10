"""Options of a component from its source: names, types and defaults, and the comment after each."""

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from xformer_kit.registry.node import Node


class OptionGroup:
    """Base of frozen dataclasses of related options.

    If a keyword-only parameter of a component is annotated with a subclass, each field of it is an
    option of the component.
    """


@cache
def option_groups(component: Any) -> Node:
    """Returns {parameter: option group} of the parameters annotated with an OptionGroup."""
    types = {key: p.annotation for key, p in parameters(component).items()}
    return {
        key: of for key, of in types.items() if inspect.isclass(of) and issubclass(of, OptionGroup)
    }


@cache
def parameters(component: Any) -> Mapping[str, inspect.Parameter]:
    """Returns the parameters of a function or of a class's constructor; none for a class without a
    constructor of its own.
    """
    target = component.__init__ if inspect.isclass(component) else component
    if inspect.isclass(component):
        owner = next(c for c in component.__mro__ if "__init__" in vars(c))
        if owner is object or (owner.__module__, owner.__name__) == (
            "torch.nn.modules.module",
            "Module",
        ):
            return MappingProxyType({})  # no constructor of its own: no options
    found = dict(inspect.signature(target, eval_str=True).parameters)
    if inspect.isclass(component):
        found.pop(next(iter(found)))  # self
    return MappingProxyType(found)


def meaning(component: Any, option: str) -> str:
    """Returns the comment after the option, in the component or in a base class."""
    places = (
        [c for c in component.__mro__ if c is not object]
        if inspect.isclass(component)
        else [component]
    )
    return next((text for place in places if (text := _meanings(place).get(option))), "")


@cache
def _meanings(component: Any) -> dict[str, str]:
    """Returns {option: unit or meaning}: the comment after it in the source, or a docstring line
    `option: meaning`.
    """
    found = _described(inspect.getdoc(component) or "")
    try:
        source = textwrap.dedent(inspect.getsource(component))
        nodes = list(ast.walk(ast.parse(source)))
    except (OSError, TypeError, SyntaxError):
        return found
    comments = line_comments(source)
    for node in nodes:
        if isinstance(node, ast.arguments):
            found |= _of_parameters(node, comments)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(node.lineno, (node.end_lineno or 0) + 1)
            if text := next((comments[line] for line in lines if line in comments), ""):
                found[node.target.id] = text
    return found


def _described(doc: str) -> dict[str, str]:
    """Returns {option: meaning} of the lines `option: meaning` of a docstring and the lines that
    continue them.
    """
    found: dict[str, str] = {}
    name = None
    for line in doc.split("\n"):
        if match := re.match(r"^\s*`?(\w+)`?: (.+)$", line):
            name, found[match[1]] = match[1], match[2].strip()
        elif not line.strip():
            name = None
        elif name is not None:
            found[name] += f" {line.strip()}"
    return found


def line_comments(source: str) -> dict[int, str]:
    """Returns {line of code: comment after it, else the comment lines above it}."""
    found: dict[int, str] = {}
    above: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line, column = token.start
        if token.type == tokenize.COMMENT and token.line[:column].strip():
            found[line] = re.sub(r"^type: ignore\S*[ #]*", "", token.string.lstrip("# "))
        elif token.type == tokenize.COMMENT:
            above.append(token.string.lstrip("# "))
        elif token.string.strip() or not token.line.strip():  # code, or an empty line
            if above and token.string.strip():
                found[line] = " ".join(above)
            above = []
    return found


def _of_parameters(signature: ast.arguments, comments: Mapping[int, str]) -> dict[str, str]:
    """Returns {parameter: first comment on its lines}, which end before the next parameter: a
    default may span several lines.
    """
    every = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
    defaults = [default.end_lineno for default in signature.kw_defaults if default is not None]
    last = max(filter(None, [*(arg.end_lineno for arg in every), *defaults]), default=0)
    found: dict[str, str] = {}
    for line, text in sorted(comments.items()):
        before = [arg.arg for arg in every if arg.lineno <= line <= last]
        if before:
            found.setdefault(before[-1], text)
    return found
