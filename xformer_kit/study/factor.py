"""Factors of a study. Each factor has levels; a level is a set of config overrides.

    factors:
      placement: [post, sandwich]                 # a config key and its values
      block:                                      # a free name: label -> overrides
        wide: {ffn.expand: 6, model.layers: 4}
        deep: {model.layers: 8}
    baseline: {placement: pre, block: {model.layers: 6}}

The baseline has a level of every factor. It is run too, and all differences are from it.
A labelled level can be the baseline: `baseline: {block: wide}`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from xformer_kit.registry import Context, Fault, suggestion
from xformer_kit.study.nodes import Node
from xformer_kit.study.range import SETTINGS, FactorRange
from xformer_kit.text.command_lines import override_text

Levels = dict[str, str]  # factor -> label of its level
BASELINE = "baseline"  # label of a baseline level that is a mapping of overrides


@dataclass(frozen=True)
class Factor:
    """A factor. `when` is its condition (study.only): other factor -> labels at which this factor
    can leave its baseline.
    """

    name: str
    baseline: str  # label
    levels: Mapping[str, Node]  # label -> overrides, including the baseline
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # numbers that a search draws; then `levels` has only the baseline
    interval: FactorRange | None = None

    @property
    def changed_labels(self) -> list[str]:
        """Labels of the levels other than the baseline."""
        return [label for label in self.levels if label != self.baseline]

    def active(self, levels: Levels) -> bool:
        """Whether the condition is met at these levels."""
        return all(levels[other] in wanted for other, wanted in self.when.items())

    def words(self, label: str) -> list[str]:
        """The overrides of a level, as words of the command line."""
        if label not in self.levels and self.interval is not None:
            return [f"{self.name}={label}"]
        return [f"{key}={override_text(value)}" for key, value in self.levels[label].items()]

    def label(self, value: float) -> str:
        """The label of a number of the interval."""
        assert self.interval is not None
        return override_text(self.interval.rounded(value))

    def labels(self) -> list[str] | None:
        """Labels of all levels, or of all numbers of the interval; None if there are too many."""
        if self.interval is None:
            return list(self.levels)
        values = self.interval.values()
        return None if values is None else [self.label(value) for value in values]


Factors = Mapping[str, Factor]


def label_of(value: Any) -> str:
    """The label of a level without one: its value; of a component, its name and options."""
    if isinstance(value, Mapping) and "name" in value:
        rest = " ".join(f"{k}={override_text(v)}" for k, v in value.items() if k != "name")
        return f"{value['name']} {rest}".strip()
    return override_text(value)


def read_factors(node: Node) -> tuple[dict[str, Factor], list[Fault]]:
    """The factors of a study's node, and their faults."""
    found: dict[str, Factor] = {}
    return found, list(_read_into(node, found))


def _read_into(node: Node, found: dict[str, Factor]) -> Iterator[Fault]:
    """Adds the factors to `found`."""
    factors, base, only = (node.get(key) or {} for key in ("factors", "baseline", "only"))
    for name, levels in factors.items():
        yield from _read_factor(str(name), levels, base, found)
    for name in base:
        if name not in factors:
            fix = suggestion(name, map(str, factors), "Factors")
            yield Fault(
                f"study.baseline.{name}",
                "is no factor",
                fix=f"{fix} Settings of all variants are set outside of study.",
            )
    yield from _read_conditions(only, found)


def _read_factor(name: str, levels: Any, base: Node, found: dict[str, Factor]) -> Iterator[Fault]:
    """Adds a factor with its levels or interval to `found`."""
    path = f"study.factors.{name}"
    interval = isinstance(levels, Mapping) and bool(levels.keys() & {"low", "high"})
    known: dict[str, Node] = {}
    wrong = list(
        SETTINGS.faults({"name": "interval", **levels}, path, Context())
        if interval
        else _read_levels(name, path, levels, known)
    )
    yield from wrong
    if name not in base:
        yield Fault(
            "study.baseline",
            "must give every factor its level",
            got=f"none for '{name}'",
            fix=f"Add {name}: with the level that the others are compared with.",
        )
    elif interval and not wrong:
        between, value = FactorRange(**levels), base[name]
        if between.contains(value):
            label = override_text(value)
            found[name] = Factor(name, label, {label: {name: value}}, {}, between)
        else:
            kind = "a whole number" if between.integer else "a number"
            yield Fault(
                f"study.baseline.{name}",
                f"must be {kind} of its interval, {between}",
                got=value,
                fix="The search begins with it.",
            )
    elif known:
        yield from _read_baseline(name, known, base[name], isinstance(levels, Mapping), found)


def _read_baseline(
    name: str, known: dict[str, Node], base: Any, labelled: bool, found: dict[str, Factor]
) -> Iterator[Fault]:
    """Adds a factor whose baseline is the label of a labelled level, a value, or overrides."""
    is_overrides = isinstance(base, Mapping) and "name" not in base
    label = BASELINE if is_overrides else label_of(base)
    overrides: Node = base if is_overrides else {name: base}
    if labelled and label in known:
        overrides = known[label]
    elif any(set(words) != {name} for words in known.values()) and not is_overrides:
        rule = f"must be one of {', '.join(known)}, or a mapping of overrides like them, {{}} for"
        yield Fault(f"study.baseline.{name}", f"{rule} none", got=base)
    levels = {label: overrides} | known
    if len(levels) == 1:
        rule = f"has no level but the baseline's, {label}"
        yield Fault(f"study.factors.{name}", rule, fix="Add another.")
    found[name] = Factor(name, label, levels)


def _read_levels(name: str, path: str, levels: Any, known: dict[str, Node]) -> Iterator[Fault]:
    """Adds the levels to `known`: label -> overrides."""
    if isinstance(levels, Mapping) and levels:
        for label, words in levels.items():
            if isinstance(words, Mapping):
                known[str(label)] = dict(words)
            else:
                yield Fault(
                    f"{path}.{label}",
                    "must be a mapping of overrides, such as {ffn.width: 64}",
                    got=words,
                )
        return
    values = levels if isinstance(levels, (list, tuple)) else []
    if not values:
        yield Fault(path, "must list its levels, or map labels to overrides", got=levels)
    known |= {label_of(value): {name: value} for value in values}


def _read_conditions(only: Node, found: dict[str, Factor]) -> Iterator[Fault]:
    """Adds the conditions of `only`: {factor: {other factor: level or list of levels}}."""
    for name, needs in only.items():
        path = f"study.only.{name}"
        if name not in found or not isinstance(needs, Mapping) or not needs:
            yield Fault(
                path,
                "must name a factor and the levels of another, such as only: {attn.score.alpha:"
                " {attn.score: entmax}}",
                needs,
                f"Factors: {', '.join(found)}.",
            )
            continue
        when = {
            str(other): tuple(map(label_of, labels if isinstance(labels, list) else [labels]))
            for other, labels in needs.items()
        }
        for other, wanted in when.items():
            levels = {key: factor.levels for key, factor in found.items() if key != name}
            known: Node
            if other not in levels:
                rule, known = "must be another factor of the study", levels
            elif set(wanted) - levels[other].keys() or not wanted:
                rule, known = "must be a level of that factor", levels[other]
            else:
                continue
            got = ", ".join(wanted) or "none"
            yield Fault(f"{path}.{other}", rule, got, f"Known: {', '.join(known)}.")
        found[name] = replace(found[name], when=when)
