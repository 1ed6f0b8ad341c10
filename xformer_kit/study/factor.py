"""What is varied in a study: factors, each with levels; a level is a few overrides of the config.

    factors:
      placement: [post, sandwich]                 # an override's key and its values
      block:                                      # a name of one's own: label -> overrides
        wide: {ffn.expand: 6, model.layers: 4}
        deep: {model.layers: 8}
    baseline: {placement: pre, block: {model.layers: 6}}

The baseline gives every factor its level, so every difference that a study reports is one to
something that was run. It may name a labelled one: `baseline: {block: wide}`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from xformer_kit.registry import Context, Fault, choices, shown
from xformer_kit.registry.command_lines import quoted
from xformer_kit.study.nodes import Node
from xformer_kit.study.range import SETTINGS, Range

Levels = dict[str, str]  # factor -> label of its level
BASELINE = "baseline"  # label of a level that has no other
PLAIN = re.compile(r"[A-Za-z0-9_.+-][A-Za-z0-9_./:+-]*")


@dataclass(frozen=True)
class Factor:
    """One thing that is varied. `when`: other factors -> labels under which this one can leave its
    baseline.
    """

    name: str
    baseline: str  # label
    levels: Mapping[str, Node]  # label -> key -> value, the baseline's among them
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # numbers that a search draws from; its level is then only the baseline's
    interval: Range | None = None

    @property
    def others(self) -> list[str]:
        """Labels of the levels that are not the baseline's."""
        return [label for label in self.levels if label != self.baseline]

    def active(self, levels: Levels) -> bool:
        """Whether its condition is met."""
        return all(levels[other] in wanted for other, wanted in self.when.items())

    def words(self, label: str) -> list[str]:
        if label not in self.levels and self.interval is not None:
            return [f"{self.name}={label}"]
        return [f"{key}={text(value)}" for key, value in self.levels[label].items()]

    def label(self, value: float) -> str:
        """How a number of the interval is called: as it is typed."""
        assert self.interval is not None
        return text(self.interval.exact(value))

    def labels(self) -> list[str] | None:
        """Of all levels, or of all numbers of the interval; None if those are too many."""
        if self.interval is None:
            return list(self.levels)
        values = self.interval.values()
        return None if values is None else [self.label(value) for value in values]


Factors = Mapping[str, Factor]


def text(value: Any) -> str:
    """A value as Hydra's grammar reads it."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{k}:{text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(text, value)) + "]"
    if value is None or isinstance(value, bool):
        return shown(value)
    if isinstance(value, str) and not PLAIN.fullmatch(value):
        return quoted(value)
    return str(value)


def label_of(value: Any) -> str:
    """How a level is called that has no label: its value; of a component with options, its name and
    what differs.
    """
    if isinstance(value, Mapping) and "name" in value:
        rest = " ".join(f"{k}={text(v)}" for k, v in value.items() if k != "name")
        return f"{value['name']} {rest}".strip()
    return text(value)


def read(node: Node) -> tuple[dict[str, Factor], list[Fault]]:
    """The factors of a study's node, and what is wrong with them."""
    found: dict[str, Factor] = {}
    faults = list(_read(node, found))
    return found, faults


def _read(node: Node, found: dict[str, Factor]) -> Iterator[Fault]:
    """Adds the factors to `found`."""
    components = {key: node.get(key) or {} for key in ("factors", "baseline", "only")}
    wrong = {key: value for key, value in components.items() if not isinstance(value, Mapping)}
    for key, value in wrong.items():
        yield Fault(f"study.{key}", "must be a mapping of factors", got=shown(value))
    if wrong:
        return
    given, base, only = components.values()
    misspelt = dict(_misspelt(given, base))
    for name, other in misspelt.items():
        yield Fault(
            f"study.factors.{name}",
            f"has no level in study.baseline, which has {other}",
            fix="Give the factor one name in both.",
        )
    for name, levels in given.items():
        if name not in misspelt:
            yield from _factor(str(name), levels, base, found)
    for name in base:
        if name not in given and name not in misspelt.values():
            fix = choices(name, map(str, given), "Factors")
            fix = f"{fix} What all variants share stands next to study."
            yield Fault(f"study.baseline.{name}", "is no factor", fix=fix)
    yield from _conditions(only, found)


def _misspelt(given: Node, base: Node) -> Iterator[tuple[str, str]]:
    """Factors without a baseline -> what it calls them, where one name is close to the other."""
    free = [str(name) for name in base if name not in given]
    for name in (name for name in given if name not in base):
        for other in get_close_matches(str(name), free, n=1):
            free.remove(other)
            yield name, other


def _factor(name: str, levels: Any, base: Node, found: dict[str, Factor]) -> Iterator[Fault]:
    path = f"study.factors.{name}"
    interval = isinstance(levels, Mapping) and bool(levels.keys() & {"low", "high"})
    known: dict[str, Node] = {}
    wrong = list(
        SETTINGS.faults({"name": "interval", **levels}, path, Context())
        if interval
        else _levels(name, path, levels, known)
    )
    yield from wrong
    if name not in base:
        yield Fault(
            "study.baseline",
            "must give every factor its level",
            got=f"none for '{name}'",
            fix=f"Add {name}: and the level that the others are compared with.",
        )
    elif interval and not wrong:
        between, value = Range(**levels), base[name]
        if between.holds(value):
            label = text(value)
            found[name] = Factor(name, label, {label: {name: value}}, {}, between)
        else:
            kind = "a whole number" if between.whole else "a number"
            yield Fault(
                f"study.baseline.{name}",
                f"must be {kind} of its interval, {between}",
                got=shown(value),
                fix="The search begins with it.",
            )
    elif known:
        yield from _of_levels(name, known, base[name], isinstance(levels, Mapping), found)


def _of_levels(
    name: str, known: dict[str, Node], base: Any, labelled: bool, found: dict[str, Factor]
) -> Iterator[Fault]:
    """Adds a factor whose baseline is the label of a labelled level, a value, or overrides."""
    path, others = f"study.factors.{name}", dict(known)
    own = isinstance(base, Mapping) and "name" not in base
    label = BASELINE if own else label_of(base)
    overrides: Node = base if own else {name: base}
    if labelled and label in known:
        overrides = others.pop(label)
    elif any(set(words) != {name} for words in known.values()) and not own:
        rule = f"must be one of {', '.join(known)}, or a mapping of overrides like them, {{}} for"
        yield Fault(f"study.baseline.{name}", f"{rule} none", got=shown(base))
    if not others:
        yield Fault(path, f"has no level but the baseline's, {label}", fix="Add another.")
    for other, words in others.items():
        if words == overrides or other == label:
            rule = f"its level {other} equals the baseline, so there is nothing to compare"
            yield Fault(path, rule, fix="Leave it out of the factor.")
    found[name] = Factor(name, label, {label: overrides} | others)


def _levels(name: str, path: str, levels: Any, known: dict[str, Node]) -> Iterator[Fault]:
    """Adds the levels to `known`: label -> overrides."""
    if isinstance(levels, Mapping) and levels:
        for label, words in levels.items():
            if isinstance(words, Mapping):
                known[str(label)] = dict(words)
            else:
                yield Fault(
                    f"{path}.{label}",
                    "must be a mapping of overrides, such as {ffn.width: 64}",
                    got=shown(words),
                )
        return
    values = levels if isinstance(levels, (list, tuple)) else []
    if not values:
        yield Fault(path, "must list its levels, or map labels to overrides", got=shown(levels))
    for value in values:
        if (label := label_of(value)) in known:
            yield Fault(path, f"has the level {label} twice", fix="Leave one out.")
        known[label] = {name: value}


def _conditions(only: Node, found: dict[str, Factor]) -> Iterator[Fault]:
    """Adds the conditions of `only`: {factor: {other factor: level or levels}}."""
    for name, needs in only.items():
        path = f"study.only.{name}"
        if name not in found or not isinstance(needs, Mapping) or not needs:
            yield Fault(
                path,
                "must name a factor and the levels of another, such as only: {attn.score.alpha:"
                " {attn.score: entmax}}",
                got=shown(needs),
                fix=f"Factors: {', '.join(found)}.",
            )
            continue
        when: dict[str, tuple[str, ...]] = {}
        for other, labels in needs.items():
            if other not in found or other == name:
                others = ", ".join(one for one in found if one != name) or "none"
                yield Fault(
                    f"{path}.{other}",
                    f"must be another factor of the study, of which there are {others}",
                    fix=f"Add {other} to study.factors, or leave the condition out.",
                )
                continue
            wanted = labels if isinstance(labels, (list, tuple)) else [labels]
            when[str(other)] = tuple(map(label_of, wanted))
            missing = [label for label in when[str(other)] if label not in found[other].levels]
            if missing or not wanted:
                yield Fault(
                    f"{path}.{other}",
                    "must be a level of that factor",
                    got=", ".join(missing) or "none",
                    fix=f"Known: {', '.join(found[other].levels)}.",
                )
        found[name] = replace(found[name], when=when)
