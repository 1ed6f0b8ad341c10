"""Checks the laws for a component in several compositions, and for all components of a file."""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Literal, NamedTuple

from xformer_kit.config import GROUPS, MAPPING_GROUPS, NESTED_GROUPS, import_components
from xformer_kit.files.user_errors import raised
from xformer_kit.inspect.layers import format_ranges, group_equal
from xformer_kit.laws.building import sampled_comparisons
from xformer_kit.laws.kinds import KIND_LAWS, check_laws_of_kind
from xformer_kit.laws.registry import LAWS, SLOW
from xformer_kit.laws.tiny_composition import LawBroken, overrides
from xformer_kit.laws.trials import COMPONENTS, Trial, own_sets, size_note, trials
from xformer_kit.plan import KINDS
from xformer_kit.registry import ConfigError, Node, config_error, suggestion
from xformer_kit.text.user_path import user_path

# Laws without which two forward passes of a model cannot be compared.
FIRST = "evaluation", "randomness"
REGISTERS = "registers"  # the law of a result for a component that cannot be registered


class Result(NamedTuple):
    """The result of one law for one component."""

    component: str  # "attn mine"
    law: str
    verdict: Literal["ok", "broken", "skipped"]
    sentence: str


class Check(NamedTuple):
    """The results of the laws for one component, and the compositions in which it was checked.

    note: what was changed in the models so that its options fit, or "".
    """

    component: str
    results: list[Result]
    trials: list[Trial] = []
    note: str = ""

    @property
    def has_laws(self) -> bool:
        """Whether there are laws about components of its kind."""
        return self.component.split()[0] in COMPONENTS | KIND_LAWS

    @property
    def ran(self) -> bool:
        """Whether some law was kept or broken, not only skipped."""
        return any(result.verdict != "skipped" for result in self.results)


def check_file(path: str) -> list[Check]:
    """Checks all laws for every component that a Python file registers. Raises ConfigError if it
    registers none.
    """
    refused: list[tuple[str, ConfigError]] = []
    import_components([path], GROUPS.values(), refused)
    checks = [
        Check(component, [Result(component, REGISTERS, "broken", str(error))])
        for component, error in refused
    ]
    file, registries = user_path(path).resolve(), GROUPS | NESTED_GROUPS | MAPPING_GROUPS
    components = [
        (group, name)
        for group, registry in registries.items()
        for name, component in registry.loaded.items()
        if Path(inspect.getfile(component)).resolve() == file
    ]
    for component in components:
        with ExitStack() as stack:  # a component is not composed with others of its file
            for group, registry in registries.items():
                others = [one[1] for one in components if one[0] == group and one != component]
                stack.enter_context(registry.leaving_out(others))
            checks.append(check_component(*component))
    if not checks:
        raise config_error(
            "components",
            f"{path} registers no component",
            fix="Decorate one, e.g. @ATTENTIONS.register('mine').",
        )
    return checks


def check_component(kind: str, name: str) -> Check:
    """Checks all laws for one component in several compositions, slow laws in one for each option
    set; of one that is not part of a model, the laws of its kind. There is one result per law,
    broken if any composition breaks it.
    """
    component = f"{kind} {name}"

    def ended(law: str, verdict: Literal["broken", "skipped"], sentence: str) -> Check:
        return Check(component, [Result(component, law, verdict, sentence)], tried)

    tried: list[Trial] = []
    if kind in KIND_LAWS:
        return Check(component, [Result(component, *o) for o in check_laws_of_kind(kind, name)])
    if kind not in COMPONENTS:
        kinds = ", ".join([*KINDS, "extra", *KIND_LAWS])
        return ended("all", "skipped", f"there are no laws for this kind; there are for {kinds}.")
    try:
        tried = trials(kind, name)
        unknown = [law for law in COMPONENTS[kind].broken_laws(name) if law not in LAWS]
    except Exception as error:  # of its own `check`, `cannot`, `traits` or `breaks`
        return ended("composes", "broken", f"{raised(error, COMPONENTS[kind][name])}.")
    if all(trial.faults for trial in tried):
        reasons = " ".join(dict.fromkeys(str(fault) for trial in tried for fault in trial.faults))
        return ended("composes", "broken", f"every composition tried is refused: {reasons}")
    if unknown:
        sentence = f"no law is called '{unknown[0]}'. {suggestion(unknown[0], LAWS)}"
        return ended("breaks", "broken", sentence)
    note = size_note(kind, name, tried[0].config["model"]["dim"])
    results = [*_refused_sets(component, tried), *_results(component, tried)]
    return Check(component, results, tried, note)


def _refused_sets(component: str, tried: list[Trial]) -> Iterator[Result]:
    """Yields a result for each option set of a component that no composition accepts."""
    sets = own_sets(*component.split())
    for i, node in enumerate(sets, 1):
        refused = [trial.faults for trial in tried if trial.node == node]
        if all(refused):
            sentence = f"option set {i} of {len(sets)} is always refused: {refused[0][0]}"
            yield Result(component, "composes", "broken", sentence)


def _results(component: str, tried: list[Trial]) -> list[Result]:
    """Returns the result of each law in the compositions that are not refused."""
    checked: dict[str, list[tuple[int, Result]]] = {law: [] for law in LAWS}
    seen: list[Node] = []  # option sets
    for i, trial in enumerate(tried, 1):
        if trial.faults:
            continue
        with sampled_comparisons() if seen else nullcontext():
            cause = ""
            # All laws of one composition share its models.
            for law in sorted(checked, key=lambda law: law not in FIRST):
                results = checked[law]
                broken = results and results[-1][1].verdict == "broken"
                if not broken and (trial.node not in seen or law not in SLOW):
                    results.append((i, _check(component, law, trial.config, cause)))
                last = results[-1][1]
                if law in FIRST and last.sentence.startswith(f"the law '{law}' is broken"):
                    cause = f"two forward passes are compared, and the law '{law}' is broken"
        seen.append(trial.node)
    return [_merged(results) for results in checked.values()]


def _check(component: str, law: str, config: Node, cause: str) -> Result:
    """Returns the result of a law for one config; it is skipped if there is a cause."""
    if cause:
        return Result(component, law, "skipped", cause)
    try:
        reason = LAWS[law](config)
    except LawBroken as error:
        return Result(component, law, "broken", str(error))
    except Exception as error:
        kind, name = component.split()
        sentence = (
            f"{raised(error, COMPONENTS[kind][name])}. Seen with: {' '.join(overrides(config))}"
        )
        return Result(component, law, "broken", sentence)
    return Result(component, law, "ok" if reason is None else "skipped", reason or "")


def _merged(results: list[tuple[int, Result]]) -> Result:
    """Returns one result for the results of a law in compositions with these numbers, of which only
    the last may be broken.
    """
    last = results[-1][1]
    if last.verdict == "broken":
        return last
    skipped = [(i, result.sentence) for i, result in results if result.verdict == "skipped"]
    left_out = "; ".join(
        f"{format_ranges(numbers)} left out: {reason}"
        for reason, numbers in group_equal(skipped).items()
    )
    kept = format_ranges([i for i, result in results if result.verdict == "ok"])
    if not kept:
        reasons = "; ".join(dict.fromkeys(reason for _, reason in skipped))
        return last._replace(sentence=f"{reasons}.")
    sentence = f"kept in {kept}{left_out and '; '}{left_out}."
    return last._replace(verdict="ok", sentence=sentence)
