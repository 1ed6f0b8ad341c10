"""Options of a component from its source: names, types and defaults, and the comment after each."""

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Mapping
from functools import cache
from itertools import count, pairwise
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
        tree = ast.parse(source)
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (OSError, TypeError, SyntaxError, tokenize.TokenError):
        return found
    comments = _comments(tokens)
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            found |= _first_comments(_spans(node), comments)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found |= _first_comments({node.target.id: (node.lineno, node.end_lineno)}, comments)
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


def _comments(tokens: list[tokenize.TokenInfo]) -> dict[int, str]:
    """Returns {line: comment}: the comment after the code, else the comment lines directly above
    it.
    """
    every = [token for token in tokens if token.type == tokenize.COMMENT]
    own = {t.start[0]: t.string.lstrip("# ") for t in every if not t.line[: t.start[1]].strip()}
    found: dict[int, str] = {}
    for line in sorted(own):
        if line - 1 not in own:
            last = next(end for end in count(line) if end + 1 not in own)
            found[last + 1] = " ".join(own[at] for at in range(line, last + 1))
    after = [token for token in every if token.start[0] not in own]
    return found | {
        token.start[0]: re.sub(r"^type: ignore\S*[ #]*", "", token.string.lstrip("# "))
        for token in after
    }


def _spans(signature: ast.arguments) -> dict[str, tuple[int, int]]:
    """Returns {parameter: (first line, last line)}, up to the next parameter: a default may span
    several lines.
    """
    every = [*signature.posonlyargs, *signature.args, *signature.kwonlyargs]
    ends = [default.end_lineno for default in signature.kw_defaults if default is not None]
    last = max([*(arg.end_lineno for arg in every), *ends], default=0)
    following = {arg.arg: after.lineno - 1 for arg, after in pairwise(every)}
    on_line = {arg.lineno: arg for arg in every}  # the last of several on one line
    return {
        arg.arg: (arg.lineno, max(arg.lineno, following.get(arg.arg, last)))
        for arg in on_line.values()
    }


def _first_comments(
    spans: Mapping[str, tuple[int, int]], comments: Mapping[int, str]
) -> dict[str, str]:
    """Returns {name: first comment on its lines}."""
    found = {
        name: [comments[at] for at in range(a, b + 1) if at in comments]
        for name, (a, b) in spans.items()
    }
    return {name: texts[0] for name, texts in found.items() if texts}
