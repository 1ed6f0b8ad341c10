"""The keys of what commands print with --json, as docs/guide/programs.md has them."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "programs.md"
ROW = re.compile(r"^\| (\w+(?: --tasks)?) \| `(\S+)` \| (.+?) \| .+ \|$", re.MULTILINE)
LIKE = re.compile(r"like `(\w+) ?(\S*)`")
TYPES = {str: "text", int: "integer", float: "number", bool: "boolean", type(None): "null"}
TYPES |= {list: "list", dict: "mapping"}


def documented_keys():
    """Returns {command: {key: type}}."""
    found = {}
    for command, key, kind in ROW.findall(PAGE.read_text(encoding="utf-8")):
        assert key not in found.setdefault(command, {})
        found[command][key] = kind
    return found


def differences(rows, value, command, path=""):
    """Yields where a value, or one inside it, is not as documented."""
    cell = rows[command].get(path, "")
    if value is None and "null" in cell:
        return
    if like := LIKE.search(cell):
        yield from differences(rows, value, like[1], like[2])
        return
    documented = {*re.findall(r"\w+", cell)} & {*TYPES.values(), "any"}
    documented |= {"integer"} if "number" in documented else set()
    inside = children(rows[command], path)
    if documented and not documented & {TYPES[type(value)], "any"}:
        yield f"{path} is {TYPES[type(value)]}"
    elif isinstance(value, list) and "[]" in inside:
        for item in value:
            yield from differences(rows, item, command, f"{path}[]")
    elif isinstance(value, dict) and inside:
        yield from (
            f"{path}.{key} is missing" for key in inside if inside[key] and key not in value
        )
        for key, item in value.items():
            known = key if key in inside else "*"
            if known in inside:
                yield from differences(rows, item, command, f"{path}.{known}".lstrip("."))
            else:
                yield f"{path}.{key} is not documented"
    elif not documented:
        yield f"{path} is not documented"


def children(keys, path):
    """{key in the mapping at a path, or [] of a list: whether it is always there}."""
    found = {}
    prefix = re.compile(
        re.escape(path) + (r"(\.|(?=\[))" if path else "()") + r"(\[\]|[^.\[]+)(.*)"
    )
    for key, kind in keys.items():
        if match := prefix.fullmatch(key):
            is_optional = match[2] == "*" or ("optional" in kind and match[3] in ("", "[]"))
            found[match[2]] = found.get(match[2], True) and not is_optional
    return found
