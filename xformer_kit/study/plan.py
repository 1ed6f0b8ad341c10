"""The runs of a study: variants x seeds; each run has a config, a key, and words
that compose it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

from xformer_kit.registry import ConfigError, Fault, config_error, nearest, shown
from xformer_kit.study import claim
from xformer_kit.study.design import DESIGNS, Rung
from xformer_kit.study.factor import Factors, Levels, text
from xformer_kit.study.nodes import Config, Node
from xformer_kit.study.question import label, levels_of
from xformer_kit.study.settings import seeds

# words -> the config, and its faults
Compose = Callable[[list[str]], tuple[Config, list[Fault]]]


@dataclass(frozen=True)
class Variant:
    """One combination of levels. `name` is what the report calls it, `words` compose it after
    those of the command line.
    """

    label: str
    name: str
    levels: Levels
    words: tuple[str, ...]
    config: Config
    tuned: tuple[str, ...] = ()  # the words of `tune` that it is run with
    # params, flops, tokens, steps, seconds as far as known
    cost: Mapping[str, float] = None  # type: ignore[assignment]
    knob: tuple[str, ...] = ()  # what the budget turned: ffn.width=342
    off: float = 0.0  # share by which it misses the budget
    rung: Rung | None = None  # of a ladder

    @property
    def everything(self) -> tuple[str, ...]:
        size = (*self.rung.words, f"trainer.max_steps={self.rung.steps}") if self.rung else ()
        return (*self.words, *size, *self.tuned, *self.knob)

    def plain(self) -> dict:
        """As plan.json holds it: without its config, which its overrides compose."""
        node = asdict(replace(self, config={}))
        del node["config"]
        return node

    @property
    def title(self) -> str:
        """What distinguishes it from all other entries of the plan."""
        return titled(self.name, self.rung, self.tuned)


def titled(name: str, rung: Rung | None, tuned: Iterable[str]) -> str:
    return " ".join((name, *([rung.name] if rung else []), *tuned))


@dataclass(frozen=True)
class StudyRun:
    """One training: a variant under a seed. `key` names its directory."""

    variant: Variant
    seed: int
    key: str

    @property
    def words(self) -> list[str]:
        return [*self.variant.everything, f"seed={self.seed}"]

    @property
    def config(self) -> Config:
        return {**self.variant.config, "seed": self.seed}


def variants(node: Node, compose: Compose) -> list[Variant]:
    """The variants of a study's complete node, composed and checked, the baseline first.

    Raises ConfigError with the faults of all of them, each with its variant, and where there are
    too many runs.
    """
    factors, chosen = levels_of(node)
    found, wrong = [], dict[Fault, list[str]]()  # fault -> the variants that have it
    rungs: list[Rung | None] = list(DESIGNS.create(node["design"]).rungs()) or [None]
    _held(node, len(chosen), rungs)
    tried = 0
    for levels in chosen:
        named = label(factors, levels)
        name, words = name_of(node, named), words_of(factors, levels)
        # Rungs of a size have one config until their steps are counted.
        known: dict[tuple[str, ...], Config] = {}
        for rung, tuned in product(rungs, tunings(node)):
            size = (*(rung.words if rung else ()), *tuned)
            if size not in known:
                known[size], faults = compose([*words, *size])
                for fault in faults:
                    wrong.setdefault(fault, []).append(" ".join((named, *size)))
                tried += 1
            found.append(
                Variant(named, name, levels, tuple(words), known[size], tuple(tuned), rung=rung)
            )
    faults = [fault.with_fix(f"[{_of(names, tried)}]") for fault, names in wrong.items()]
    faults += [*_labels(node, found), *_claimed(node, found), *([] if faults else _same(found))]
    if faults:
        raise ConfigError(dict.fromkeys(faults))
    return found


def _of(names: list[str], count: int) -> str:
    """Which variants a fault is of, of so many."""
    if len(names) == count > 1:
        return "every variant"
    few, more = (names[:3], f" and {len(names) - 3} more") if len(names) > 4 else (names, "")
    return f"variant{'s' * (len(names) > 1)} {'; '.join(few)}{more}"


def _held(node: Node, count: int, rungs: Sequence[Rung | None]) -> None:
    """Raises ConfigError where so many variants make more runs than the study may have."""
    of_seeds, most = len(seeds(node)), node["max_runs"]
    each = len(rungs) * len(list(tunings(node))) * of_seeds
    if count * each <= most:
        return
    times = f", {len(rungs)} rungs" * (len(rungs) > 1) + " and their tuning" * bool(node["tune"])
    fits = most // each - 1  # variants other than the baseline
    other = f", or design={{name: random, count: {fits}}}" if fits > 0 and len(rungs) == 1 else ""
    make = f"{_counted(count, 'variant')} with {_counted(of_seeds, 'seed')}{times} make"
    raise config_error(
        "study.max_runs",
        "must hold the runs of the design",
        got=f"{most}, and {make} {count * each}",
        fix=f"Raise it, or take fewer seeds or levels{other}.",
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def name_of(node: Node, label: str) -> str:
    """What the report calls a variant."""
    return str((node["labels"] or {}).get(label, label))


def words_of(factors: Factors, levels: Levels) -> list[str]:
    """The overrides of a combination; factors whose condition is not met have none."""
    active = {name: factor for name, factor in factors.items() if factor.active(levels)}
    return [word for name, factor in active.items() for word in factor.words(levels[name])]


def tunings(node: Node) -> Iterator[list[str]]:
    """The words of each point of `tune`, one empty list where there is none."""
    tune = node["tune"] or {}
    words = ([f"{key}={text(value)}" for value in values] for key, values in tune.items())
    yield from map(list, product(*words))


def runs(found: list[Variant], node: Node, key: Callable[[Config], str]) -> list[StudyRun]:
    """All runs, seed by seed, so that a study that is stopped early has every variant at the same
    seeds.
    """
    made = [StudyRun(v, seed, "") for seed in seeds(node, found[0].config["seed"]) for v in found]
    return [replace(run, key=key(run.config)) for run in made]


def _labels(node: Node, found: list[Variant]) -> Iterator[Fault]:
    given = node["labels"] or {}
    known = dict.fromkeys(variant.label for variant in found)
    called: dict[str, str] = {}  # name -> variant
    for one in known:
        name = given.get(one, one)
        if not isinstance(name, str) or not name.strip():
            yield Fault(
                f"study.labels.{one}",
                "must be a name",
                got=shown(name),
                fix=f"Leave it out, and it is called {one}.",
            )
        elif other := called.get(name):
            yield Fault(
                "study.labels",
                f"{other} and {one} are both called {name!r}",
                fix="Give each a name of its own.",
            )
        called.setdefault(str(name), one)
    for name in given:
        if name not in known:
            ends = (f"Did you mean {one}? " for one in known if one.endswith(f"={name}"))
            near = next(ends, nearest(str(name), known))
            fix = f"{near}Known: {'; '.join(known)}."
            yield Fault(f"study.labels.{name}", "is no variant", fix=fix)


def _claimed(node: Node, found: list[Variant]) -> list[Fault]:
    """A claim names variants by their label, or as the report calls them."""
    given = node.get("claim") or {}
    if unknown := sorted(given.keys() - {"paper", "expect"}):
        return [
            Fault(
                f"study.claim.{unknown[0]}",
                "is no part of a claim, which has paper and expect",
                fix="Leave it out.",
            )
        ]
    expect = given.get("expect")
    if expect is None:
        return []
    known = [variant.label for variant in found] + [variant.name for variant in found]
    if wrong := claim.faults(expect, list(dict.fromkeys(known))):
        return [fault.with_fix("Or study without a claim: study.claim=null.") for fault in wrong]
    ways = {one["is"] for one in (expect if isinstance(expect, list) else [expect])}
    within = sorted(ways & claim.WITHIN)
    if within and not node["margin"]:
        return [
            Fault(
                "study.margin",
                f"must say within what '{within[0]}' is meant, for the claim expects it",
                got=shown(node["margin"]),
                fix="Try 0.05.",
            )
        ]
    return []


def _same(found: list[Variant]) -> list[Fault]:
    """Two variants of one config are one: a level that changes nothing would be reported as
    equal.
    """
    first = ((v, next(u for u in found if (u.config, u.rung) == (v.config, v.rung))) for v in found)
    return [
        Fault(
            "study.factors",
            f"{variant.label} composes the same model as {twin.label}, so there is nothing"
            " to compare",
            fix="Leave one of them out.",
        )
        for variant, twin in first
        if twin is not variant
    ]
