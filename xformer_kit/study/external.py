"""Studies of another trainer: `study.command` is started for each variant and seed, and
`study.result` names the number that it writes.

    study.command='python nano.py --lr {lr} --seed {seed} --out {dir}'
    study.result='{dir}/log.jsonl:val_loss'

Placeholders are the keys of the factors and of `tune`, {seed}, and {dir}, the directory of the run.
"""

import csv
import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

from xformer_kit.metrics import VAL_LOSS
from xformer_kit.registry import Fault
from xformer_kit.study.factor import Factors
from xformer_kit.study.nodes import Config, Node
from xformer_kit.text.command_lines import for_shell

OF_RUN = ("seed", "dir")  # placeholders that every command has
SUFFIXES = (".json", ".jsonl", ".csv")  # of files with named values
NO_DESIGNS = ("ladder", "search")  # designs that need a composed config


def with_defaults(node: Node) -> Node:
    """The node of a study; with a command, the first level of each factor is its baseline, and the
    metric is the value that the result names.
    """
    if not isinstance(node, Mapping) or not node.get("command"):
        return node
    first = {
        name: next(iter(levels))
        for name, levels in (node.get("factors") or {}).items()
        if isinstance(levels, (list, Mapping)) and levels
    }
    key = str(node.get("result") or "").partition(":")[2]
    return {"metric": key or VAL_LOSS, **node, "baseline": first | (node.get("baseline") or {})}


def faults(node: Node, factors: Factors) -> Iterator[Fault]:
    """Faults of the command and the result of a complete node."""
    if node["command"] is None:
        if node["result"] is not None:
            rule = "belongs to a study of another trainer"
            yield Fault("study.result", rule, fix="Add study.command, or leave it out.")
        return
    yield from _command_faults(node, factors)
    yield from _result_faults(str(node["result"] or ""), node["metric"])
    if node["design"]["name"] in NO_DESIGNS:
        rule, fix = "cannot be used with study.command", "Try study.design=one_at_a_time."
        yield Fault("study.design", rule, node["design"]["name"], fix)
    if node["budget"]["match"] != "none":
        rule = "the costs of a command are not known"
        yield Fault("study.budget.match", rule, node["budget"]["match"], "Set it to none.")


def _command_faults(node: Node, factors: Factors) -> Iterator[Fault]:
    """Placeholders without a value, and factors without a placeholder."""
    words = (words for factor in factors.values() for words in factor.levels.values())
    keys = [*dict.fromkeys(key for level in words for key in level), *(node["tune"] or {})]
    values = dict.fromkeys((*keys, *OF_RUN), "1")
    known = ", ".join(f"{{{name}}}" for name in values)
    used = set[str]()
    for option in ("command", "result"):
        try:
            text, named = filled(str(node[option] or ""), values)
            shlex.split(text)
        except KeyError as error:
            rule = f"no factor is called '{error.args[0]}'"
            yield Fault(f"study.{option}", rule, fix=f"Known: {known}. Write {{{{ for a brace.")
            return
        except ValueError as error:
            fix = "Write {{ for a brace, and close each quote."
            yield Fault(f"study.{option}", f"cannot be read: {error}", node[option], fix)
            return
        used |= named if option == "command" else set()
    for name in (*keys, "seed"):
        if name not in used:
            rule = f"must have {{{name}}}, or its runs are equal"
            yield Fault("study.command", rule, node["command"], "Add it.")


def filled(template: str, values: Mapping[str, Any]) -> tuple[str, set[str]]:
    """The text with the values of its placeholders, and their names, which may have dots. Raises
    KeyError for an unknown one, ValueError for one with a format or an open brace.
    """
    parts, named = [], set()
    for literal, name, form, conversion in Formatter().parse(template):
        parts.append(literal)
        if name is not None:
            if form or conversion:
                raise ValueError(f"{{{name}}} must have no format")
            parts.append(str(values[name]))
            named.add(name)
    return "".join(parts), named


def _result_faults(result: str, metric: str) -> Iterator[Fault]:
    path, _, key = result.partition(":")
    fix = "Try study.result='{dir}/log.jsonl:val_loss', or '{dir}/train.log:/loss: (.*)/'."
    if not key or "{dir}" not in path:
        yield Fault("study.result", "must be a file in {dir} and a name in it", result, fix)
    elif _is_pattern(key):
        try:
            groups = re.compile(key[1:-1]).groups
        except re.error as error:
            yield Fault("study.result", f"is no regular expression: {error}", key, fix)
            return
        if groups != 1:
            yield Fault("study.result", "must have one group, which is the number", key, fix)
        if metric == key:
            yield Fault("study.metric", "must name the number", fix="Try study.metric=loss.")
    elif Path(path).suffix not in SUFFIXES:
        rule = f"a name is read from {', '.join(SUFFIXES)}; other files need a regular expression"
        yield Fault("study.result", rule, result, fix)


def command_of(config: Config, directory: Path) -> str:
    """The shell command of a run; values are quoted."""
    values = values_of(config, directory)
    return filled(config["command"], {k: for_shell(str(v)) for k, v in values.items()})[0]


def values_of(config: Config, directory: Path) -> dict[str, Any]:
    """The values of all placeholders."""
    return {**config["values"], "seed": config["seed"], "dir": directory}


def key_of(config: Config) -> str:
    """The key of a run: a hash of its command, of the files that the command names, and of its
    result.
    """
    text = command_of(config, Path("DIR"))
    files = {word: _hash(Path(word)) for word in shlex.split(text) if Path(word).is_file()}
    parts = json.dumps([text, config["result"], config["metric"], files], sort_keys=True)
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_result(config: Config, directory: Path) -> float:
    """The number that `study.result` names, the last one in its file. Raises ValueError with a
    sentence if there is none.
    """
    name, _, key = config["result"].partition(":")
    path = Path(filled(name, values_of(config, directory))[0])
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(f"it wrote no {path.name} ({error.strerror})") from None
    found = [value for value in _values(text, path.suffix, key) if value not in (None, "")]
    if not found:
        raise ValueError(f"its {path.name} has no {key}")
    try:
        return float(found[-1])
    except (TypeError, ValueError):
        raise ValueError(f"{key} in its {path.name} is no number: {found[-1]!r}") from None


def _values(text: str, suffix: str, key: str) -> Iterator[Any]:
    """The values of a name in a file, in order."""
    if _is_pattern(key):
        yield from re.findall(key[1:-1], text)
    elif suffix == ".csv":
        yield from (row.get(key) for row in csv.DictReader(text.splitlines()))
    else:
        for part in text.splitlines() if suffix == ".jsonl" else [text]:
            try:
                yield _at(json.loads(part), key)
            except json.JSONDecodeError:  # such as a line that was cut off
                continue


def _at(data: Any, key: str) -> Any:
    """The value of a key, or of its parts: a.b is data["a"]["b"]."""
    if isinstance(data, Mapping) and key in data:
        return data[key]
    for part in key.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def _is_pattern(key: str) -> bool:
    return len(key) > 1 and key[0] == key[-1] == "/"
