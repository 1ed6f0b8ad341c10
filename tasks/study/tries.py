"""Tries of a change: the study of a base and its change gets one more seed after another, until the
sequential rule decides or the budget ends.

The study is `try_KEY`, and the key a hash of the base, the change and how they are compared. The
runs of the base are those of every study, in outputs/runs, and are trained once. A try that was
stopped goes on, and its result is in outputs/tries/KEY.json.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from tasks.logging.files import replace_text
from tasks.study.collect import results
from tasks.study.state import claim
from xformer_kit.config import config_hash, preflight
from xformer_kit.config.line.overrides import UNREADABLE, expand
from xformer_kit.files.saved_files import read_object
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.study.metric import Metric
from xformer_kit.study.noise import SOURCES
from xformer_kit.study.report.fairness import TIME_TOLERANCE
from xformer_kit.study.report.noise import noise_of
from xformer_kit.study.results import Results
from xformer_kit.study.sequential import (
    always_valid_interval,
    decide,
    log_evidence,
    pairs_to_decide,
)
from xformer_kit.study.statistics import ALPHA, Estimate, interval, magnitude

FOLDER = Path("outputs", "tries")
COSTS = ("params", "flops_per_token", "tokens_per_second", "peak_memory_bytes", "seconds")
FIRST_LOOK = 3  # pairs: fewer never decide
CERTAIN = 1e30  # t^2 of equal differences


@dataclass(frozen=True)
class Try:
    """A change of a base. base and change: overrides. effect: the smallest improvement that
    matters. seconds: the budget; None: no limit. tolerance: of the cost that is matched.
    noise: whether the base is also trained with one source of random numbers varied at a time.
    """

    base: tuple[str, ...]
    change: tuple[str, ...]
    metric: str
    match: str = "none"
    effect: float = 0.0
    pairs: int = 20
    seconds: float | None = None
    tolerance: float = 0.01
    noise: bool = False

    @property
    def name(self) -> str:
        """The change as it was typed."""
        return " ".join(self.change)

    @property
    def key(self) -> str:
        """Equal for tries of the same runs, whatever the effect and the budget."""
        parts = json.dumps([self.base, self.change, self.metric, self.match, self.tolerance])
        return hashlib.sha256(parts.encode()).hexdigest()[:12]

    @property
    def study(self) -> str:
        return f"try_{self.key}"

    @property
    def folder(self) -> Path:
        """The directory of its study."""
        return Path("outputs", "studies", self.study)

    def node(self) -> dict[str, Any]:
        """The node of its study. Raises ConfigError for a change that is no list of overrides."""
        try:
            overrides = OverridesParser.create().parse_overrides(expand(self.change))
        except UNREADABLE:
            rule = "must be overrides with a = and no spaces around it"
            raise config_error("change", rule, self.name, "Try norm=layer.") from None
        levels = {}
        for override in overrides:
            if override.is_sweep_override() or override.is_delete():
                rule = "must set a choice or a value"
                raise config_error("change", rule, override.input_line, "Try norm=layer.")
            levels[override.key_or_group] = override.value()
        return {
            "question": f"Is {self.name} better?",
            "name": self.study,
            "factors": {"change": {self.name: levels}},
            "baseline": {"change": {}},
            "labels": {"baseline": "base", f"change={self.name}": self.name},
            "metric": self.metric,
            "noise_floor": self.noise,
            "budget": {"match": self.match, "tolerance": self.tolerance},
            "log_report": False,
        }


def run_try(tried: Try) -> dict[str, Any]:
    """Trains pairs of runs until the rule decides, or the budget of pairs or seconds ends; returns
    the result, see `_result`, which is also in the history. Raises ConfigError for a line that
    cannot run, a change that changes nothing, and a base that does not train.
    """
    node = tried.node()
    keys = {_key(word) for word in tried.change}
    kept = [word for word in tried.base if _key(word) not in keys]
    base, changed = (preflight([*line]).configs[0] for line in (tried.base, (*kept, *tried.change)))
    if config_hash(base) == config_hash(changed):
        raise config_error("change", "changes nothing of the base", tried.name, "Name another.")
    with claim(FOLDER, f".{tried.key}") as held:
        if held is None:
            rule = "is tried by another process in this directory"
            raise config_error("change", rule, tried.name, "Wait for its result: xformer tries.")
        return _run_claimed(tried, node)


def _run_claimed(tried: Try, node: dict[str, Any]) -> dict[str, Any]:
    """Trains pairs of runs until the try has a result; returns it. node: of its study."""
    file = FOLDER / f"{tried.key}.yaml"
    replace_text(file, f"# @package _global_\n{yaml.safe_dump({'study': node})}")
    start, known = time.monotonic(), _finished_pairs(tried)
    pairs = max(2 if tried.noise else 1, known)
    while True:
        _train(tried, file, pairs)
        result = _result(tried, results(tried.folder))
        used = time.monotonic() - start
        each = used / max(1, pairs - known)
        result["seconds"] = used
        out_of_time = tried.seconds is not None and used + each > tried.seconds
        if out_of_time and result["decision"] == "undecided":
            result["why"] = f"the budget ended; a pair of runs takes {each:.0f} s"
        if result["decision"] != "undecided" or pairs >= tried.pairs or out_of_time:
            break
        # Any looks are valid: half of what seems to be missing, so that few pairs are superfluous.
        missing = (result["pairs_to_decide"] or pairs) - pairs
        pairs = min(tried.pairs, max(FIRST_LOOK, pairs + max(1, missing // 2)))
    replace_text(FOLDER / f"{tried.key}.json", json.dumps(result, indent=2) + "\n")
    return result


def _key(word: str) -> str:
    return word.lstrip("+").partition("=")[0]


def _finished_pairs(tried: Try) -> int:
    """The number of seeds whose two runs ended in an earlier try of the same runs."""
    try:
        found = results(tried.folder)
    except ConfigError:  # there was none
        return 0
    base, change = (
        {one.seed for one in found.outcomes_of(index) if one.status == "finished"}
        for index in (0, 1)
    )
    return len(base & change)


def _train(tried: Try, file: Path, pairs: int) -> None:
    """Trains the missing runs of so many seeds; exits with the code of a study that cannot run or
    is stopped.
    """
    words = [*tried.base, f"study={file}", f"study.seeds={pairs}"]
    command = [sys.executable, "-m", "xformer_kit", "train", *words]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, env=os.environ)
    if done.returncode not in (0, 1):  # 1: a run failed; the result has its reason
        raise SystemExit(done.returncode)


def _result(tried: Try, found: Results) -> dict[str, Any]:
    """The result of a try as plain data: the decision with its reason, the difference of the pairs
    with its always-valid interval, the noise, and the ratios of costs.
    """
    metric = found.metric
    base, change = (
        {one.seed: one.facts for one in found.outcomes_of(index) if one.status == "finished"}
        for index in (0, 1)
    )
    lost, lost_base = (
        [one for one in found.outcomes_of(index) if one.status in ("diverged", "failed")]
        for index in (1, 0)
    )
    if lost_base:
        rule = f"does not train: seed {lost_base[0].seed} {lost_base[0].status}"
        raise config_error("--base", rule, fix=lost_base[0].why)
    seeds = sorted(base.keys() & change.keys())
    x = [change[seed][metric.name] - base[seed][metric.name] for seed in seeds]
    estimate = always_valid_interval(x)
    decision, why = decide(estimate, metric.sign, tried.effect), ""
    if lost:
        decision = "discard"
        why = f"{len(lost)} of {len(found.outcomes_of(1))} runs {lost[0].status}: {lost[0].why}"
    of_pairs = interval(x)
    count = of_pairs.count
    squares = CERTAIN if of_pairs.mean else 0.0
    if of_pairs.sd:
        squares = count * (of_pairs.mean / of_pairs.sd) ** 2
    return {
        **{
            name: value for name, value in asdict(tried).items() if name not in ("seconds", "noise")
        },
        "key": tried.key,
        "study": tried.study,
        "decision": decision,
        "why": why,
        "difference": estimate._asdict(),
        "pairs": count,
        "noise_of_one_run": interval([facts[metric.name] for facts in base.values()]).sd,
        "noise_by_source": {
            one.source: one.sd.mean
            for one in noise_of(found, {seed: facts[metric.name] for seed, facts in base.items()})
            if one.source
        },
        "noise_of_a_pair": of_pairs.sd,
        "pairs_to_decide": pairs_to_decide(x, metric.sign, tried.effect),
        "log_evidence": log_evidence(squares, count) if count > 1 else 0.0,
        "improves": bool(x) and metric.side(of_pairs.mean) == "better",
        "cost": {name: _ratio(base, change, name) for name in COSTS},
    }


def _ratio(base: dict[int, Any], change: dict[int, Any], name: str) -> float | None:
    """The mean of a cost of the change by that of the base; None if it is not known."""
    means = [
        interval([facts[name] for facts in runs.values() if facts.get(name)]).mean
        for runs in (base, change)
    ]
    return None if None in means else means[1] / means[0]


def history() -> list[dict[str, Any]]:
    """The results of all tries of the current directory, the oldest first; `kept` is whether the
    change is kept with a false discovery rate of at most ALPHA over all of them.

    e-BH (Wang and Ramdas, 2022, arXiv:2009.02824): of m tries with evidence e, the k largest are
    discoveries for the largest k with e_(k) >= m / (ALPHA k). It needs no independence.
    """
    files = sorted(FOLDER.glob("*.json"), key=lambda path: path.stat().st_mtime)
    tried = [read_object(path, {}, fix="Delete it, and try the change again.") for path in files]
    return [one | {"kept": kept} for one, kept in zip(tried, _discoveries(tried), strict=True)]


def _discoveries(tried: Sequence[dict[str, Any]]) -> list[bool]:
    logs = [one["log_evidence"] if one["improves"] else 0.0 for one in tried]
    ordered = sorted(logs, reverse=True)
    enough = [k for k, e in enumerate(ordered, 1) if e >= log(len(logs) / (ALPHA * k))]
    least = ordered[max(enough) - 1] if enough else float("inf")
    return [e >= least and one["decision"] == "keep" for e, one in zip(logs, tried, strict=True)]


def sentences(result: dict[str, Any], metric: Metric) -> list[str]:
    """The result in words: the decision, the noise, what would decide, and the cost."""
    change, found = " ".join(result["change"]), result["difference"]
    if result["why"] and result["decision"] == "discard":
        return [f"Discard {change}: {result['why']}."]
    if found["mean"] is None:
        return [f"Undecided {change}: it and the base have no finished pair of runs."]
    estimate = Estimate(**found)
    pairs = f"{result['pairs']} pair{'s' * (result['pairs'] > 1)}"
    if estimate.low is None:
        signed, _ = metric.estimate(estimate, signed=True)
        text = f"the difference in {metric.title} is {signed} ({pairs})"
    else:
        is_decided = result["decision"] != "undecided"
        size, span = metric.estimate(magnitude(estimate) if is_decided else estimate, unit=True)
        side = f"{metric.name} is {metric.side(found['mean'])} by {size}"
        text = side if is_decided else f"the difference in {metric.name} is {size}"
        if result["decision"] == "discard" and result["improves"]:
            text += f", less than the {metric.format_exact(result['effect'])} that matter"
        text += f" (always-valid {100 * (1 - ALPHA):g} % interval {span}, {pairs})"
    lines = [f"{result['decision'].capitalize()} {change}: {text}."]
    noise = result["noise_of_one_run"]
    if noise is not None:
        text = f"The noise of one run, its standard deviation, is {metric.format(noise)}"
        smaller = "; the difference is smaller" * (noise > abs(found["mean"]))
        lines.append(f"{text}{smaller}.")
        each = [
            f"{metric.format(sd, unit=False) if sd else '0'} by {SOURCES[source]}"
            for source, sd in result["noise_by_source"].items()
            if sd is not None
        ]
        lines += [f"With only one source varied: {', '.join(each)}."] if each else []
    if result["decision"] == "undecided":
        needed = result["pairs_to_decide"]
        if result["why"]:
            lines.append(f"{result['why'].capitalize()}.")
        more = f"about {needed - result['pairs']} more pairs" if needed else "no number of pairs"
        lines.append(f"If differences stay as they are, {more} would decide.")
    lines += [_cost_sentence(result["cost"]), _unequal_times(result)]
    return [line for line in lines if line]


def _unequal_times(result: dict[str, Any]) -> str:
    ratio = result["cost"]["seconds"]
    if result["match"] != "seconds" or ratio is None or abs(ratio - 1) <= TIME_TOLERANCE:
        return ""
    return "Warning: the times are not equal, although seconds were matched."


def _cost_sentence(costs: dict[str, float | None]) -> str:
    names = ("parameters", "FLOPs per token", "tokens per second", "peak memory", "time of a run")
    known = [
        f"{ratio:.3g} of the {name}"
        for name, ratio in zip(names, costs.values(), strict=True)
        if ratio is not None and abs(ratio - 1) > 0.005
    ]
    return f"The change has {', '.join(known)} of the base." if known else ""
