"""What does a study say? One plain structure, from which every form of the report is written.

The answer comes first, then what was matched, the figures, the costs, what went wrong, and how to
do it again.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from xformer_kit.registry.printable import printable
from xformer_kit.study import factorial, stop
from xformer_kit.study.answer import answer, effect_sentences, missing
from xformer_kit.study.claim import Claim, held
from xformer_kit.study.factor import BASELINE
from xformer_kit.study.factorial import Cell, Effect
from xformer_kit.study.figures import Metric, decimals, metric
from xformer_kit.study.report.also import Also, also
from xformer_kit.study.report.arms import Arm, arms
from xformer_kit.study.report.curves import Curve, curves, gaps, names
from xformer_kit.study.report.laws import Laws, answered, laws, sentences, top
from xformer_kit.study.report.said import apart, matched, notes, tuning
from xformer_kit.study.report.search import Search, compared, searched
from xformer_kit.study.results import Results, title
from xformer_kit.study.statistics import Band, holm

CROSSED = ("factorial", "fractional", "pairs")  # designs whose factors meet
LEVEL = 0.95


@dataclass(frozen=True)
class Trouble:
    """A run that did not finish, or not as it was planned."""

    variant: str
    tuned: str
    seed: int
    status: str
    step: int | None
    why: str
    directory: str


@dataclass(frozen=True)
class Content:
    """All that a report shows. Sentences are plain text; figures are in the metric's own scale."""

    name: str
    question: str
    metric: Metric
    margin: float | None
    setting: str  # how large the study is
    arms: list[Arm]  # the baseline first
    sentence: str  # the answer
    sentences: list[str]  # of each arm
    partial: str  # a sentence where runs are still to come; empty where none are
    matched: str
    tuning: list[str]
    paper: str
    claim: Claim | None
    effects: list[tuple[Effect, float | None, str]]  # p after Holm, sentence
    also: list[Also]  # further metrics
    troubles: list[Trouble]
    notes: list[str]  # on fairness
    curves: dict[str, list[Curve]]  # metric -> of every arm; the first is the one that is compared
    gaps: list[Band]  # of every arm but the baseline, in the metric of the first curve
    command: list[str]  # overrides
    parts: list[str]
    versions: dict[str, str]
    samples: list[tuple[str, int, str]]  # variant, seed, text
    seeds: list[int]
    tolerance: float
    match: str
    search: Search | None = None  # where the design is one
    laws: Laws | None = None  # of a ladder

    @property
    def claimed(self) -> str:
        """Whether the claim held, and why its p may be smaller than the same variant's in the
        table.
        """
        if self.claim is None:
            return ""
        own = (
            " It is a question of its own, asked before the runs: its p is not corrected for the"
            " other variants."
        )
        return self.claim.sentence + own * (len(self.arms) > 2)

    @property
    def baseline(self) -> Arm:
        return self.arms[0]


def content(results: Results) -> Content:
    """Raises ConfigError for a metric that no run has or whose better side is unknown, and for a
    claim at fault.
    """
    node = results.study
    measured, margin = metric(node["metric"], node.get("higher_is_better")), node.get("margin")
    search, whole = searched(results, measured), results
    results = top(compared(results, measured))  # of a ladder, variants are compared at the top
    found = arms(results, measured)
    said = answer(
        found[0].runs, [arm.runs for arm in found[1:]], measured, margin=margin, level=LEVEL
    )
    drawn = names(results, measured.name)
    found = [
        found[0],
        *(replace(arm, verdict=v) for arm, v in zip(found[1:], said.verdicts, strict=True)),
    ]
    content = Content(
        name=node["name"],
        question=node["question"] or node["name"],
        metric=measured,
        margin=margin,
        setting=_setting(whole, found),
        arms=found,
        sentence=" ".join(filter(None, [said.sentence, apart(results, found)])),
        sentences=[_baseline(found[0], measured), *(v.sentence for v in said.verdicts)],
        partial=(search.partial if search else "") or _partial(whole),
        matched=matched(results, found),
        tuning=tuning(results, found, measured),
        paper=str((node.get("claim") or {}).get("paper") or ""),
        claim=_claim(results, found, measured),
        effects=_effects(results, found, measured),
        also=also(results, found),
        troubles=_troubles(whole),
        notes=[
            *notes(results, found),
            *stop.notes(results),
            *([search.caution] if search and search.caution else []),
        ],
        curves={name: curves(results, found, name) for name in drawn},
        gaps=gaps(results, found, drawn[0]) if drawn else [],
        command=results.command,
        parts=results.parts,
        versions=_versions(whole),
        samples=_samples(results, found),
        seeds=sorted({one.seed for one in results.outcomes}),
        tolerance=node["budget"]["tolerance"],
        match=node["budget"]["match"],
        search=search,
    )
    ladder = laws(whole, measured)
    return content if ladder is None else _on_ladder(content, ladder)


def _on_ladder(content: Content, found: Laws) -> Content:
    """What the laws say stands before what the top rung says."""
    there = f"On the top rung ({found.top}): "
    each = [
        f"{law} {there}{said}"
        for law, said in zip(sentences(found, content.metric), content.sentences, strict=True)
    ]
    whole = answered(found, content.metric) + (
        f" {there}{content.sentence}" if len(content.arms) > 1 else ""
    )
    return replace(content, laws=found, sentence=whole, sentences=each)


def _setting(results: Results, found: list[Arm]) -> str:
    seeds = sorted({one.seed for one in results.outcomes})
    several = (
        f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}" if seeds else "no seed"
    )
    points = max(len(arm.points) for arm in found)
    tuned = f" x {points} points of tuning" if points > 1 else ""
    rungs = len({(v.get("rung") or {}).get("said") for v in results.variants})
    tuned = f" x {rungs} rungs" * (rungs > 1) + tuned
    variants = f"{len(found)} variant{'s' * (len(found) != 1)}"
    return (
        f"{variants} x {several}{tuned}, design {results.study['design']['name']},"
        f" {results.study['metric']}"
    )


def _baseline(arm: Arm, measured: Metric) -> str:
    levels = [f"{name}={x}" for name, x in arm.levels.items()]
    said = ", ".join(
        arm.words if BASELINE in arm.levels.values() else levels
    )  # a level without a name is its overrides
    found, name = arm.best.interval, f"{arm.name} ({said})" if said else arm.name
    if found.mean is None:
        return " ".join([f"{name} has no finished run yet.", *missing(arm.runs)])
    at = f"{name} has {measured.name} {mean_said(arm, measured)}"
    runs = f"{found.count} seed{'s' * (found.count > 1)}"
    if found.low is not None:
        low, high = interval_said(arm, measured)
        runs = f"95 % interval {low} to {high}, {runs}"
    return " ".join([f"{at} ({runs}).", *missing(arm.runs)])


def digits(arm: Arm, measured: Metric) -> int:
    """Behind the point, as many as the interval supports."""
    found = arm.best.interval
    return 4 if found.low is None else decimals((found.high - found.low) / 2 * measured.scale)


def mean_said(arm: Arm, measured: Metric, unit: bool = True) -> str:
    mean = arm.best.interval.mean
    return "" if mean is None else measured.said(mean, digits(arm, measured), unit)


def interval_said(arm: Arm, measured: Metric) -> tuple[str, str]:
    found = arm.best.interval
    if found.low is None:
        return "", ""
    n = digits(arm, measured)
    return measured.said(found.low, n, unit=False), measured.said(found.high, n, unit=False)


UNFINISHED = {
    "running": "running",
    "stopped": "stopped half-way",
    "open": "not started",
    "failed": "failed",
}


def _partial(results: Results) -> str:
    count: Counter[str] = Counter(one.status for one in results.outcomes)
    left = [f"{count[status]} {said}" for status, said in UNFINISHED.items() if count[status]]
    if not left:
        return ""
    missing = sum(count[status] for status in UNFINISHED)
    return (
        f"Partial: {missing} of {len(results.outcomes)} runs have not finished ({', '.join(left)})."
        " What follows holds for the runs that have, and may change."
    )


def _claim(results: Results, found: list[Arm], measured: Metric) -> Claim | None:
    claim = results.study.get("claim") or {}
    if claim.get("expect") is None:
        return None
    known = {arm.name: arm.runs for arm in found} | {arm.label: arm.runs for arm in found}
    return held(claim["expect"], known, measured, margin=results.study.get("margin"), level=LEVEL)


def _effects(
    results: Results, found: list[Arm], measured: Metric
) -> list[tuple[Effect, float | None, str]]:
    base = found[0].levels
    if results.study["design"]["name"] not in CROSSED or len(base) < 2:
        return []
    cells = [
        Cell(arm.levels, seed, value) for arm in found for seed, value in arm.runs.values.items()
    ]
    if not cells:
        return []
    shown = factorial.effects(cells, base, LEVEL)
    ps = holm([effect.difference.p for effect in shown])
    return list(zip(shown, ps, effect_sentences(shown, measured, level=LEVEL), strict=True))


def _troubles(results: Results) -> list[Trouble]:
    found = []
    for one in results.outcomes:
        early = one.facts.get("stopped") if one.status == "finished" else None
        if one.status == "left out" or (one.status == "finished" and not early):
            continue
        variant = results.variants[one.variant]
        status, why = ("ended early", str(early)) if early else (one.status, one.why)
        found.append(
            Trouble(
                title({**variant, "tuned": []}),
                " ".join(variant["tuned"]),
                one.seed,
                status,
                one.step,
                why,
                one.directory,
            )
        )
    order = ("diverged", "failed", "pruned", "ended early", "stopped", "running", "open")
    return sorted(found, key=lambda t: order.index(t.status))


def _versions(results: Results) -> dict[str, str]:
    """Package -> version; several where runs were made with several."""
    found: dict[str, dict[str, None]] = {}
    of_runs = [one.facts.get("versions", {}) for one in results.outcomes]
    for versions in [*of_runs, (results.search or {}).get("versions", {})]:
        for name, version in versions.items():
            found.setdefault(name, {})[str(version)] = None
    return {name: ", ".join(versions) for name, versions in found.items()}


def _samples(results: Results, found: list[Arm]) -> list[tuple[str, int, str]]:
    """What each variant wrote, at the first seed that all have where there is one."""
    written: list[tuple[Arm, Mapping[int, str]]] = []
    for arm in found:
        mine = {
            o.seed: printable(str(o.facts["sample"]))
            for o in results.of(arm.best.index)
            if o.facts.get("sample")
        }
        if mine:
            written.append((arm, mine))
    common = set.intersection(*(set(mine) for _, mine in written)) if written else set()
    return [(arm.name, seed := min(common or mine), mine[seed]) for arm, mine in written]
