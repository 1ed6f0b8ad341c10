"""Results of studies with invented figures, and directories like those of real runs."""

import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path

from tasks.logging.csv_log import CsvLog
from tasks.process.exit_codes import NONFINITE
from xformer_kit.study.report.content import content
from xformer_kit.study.report.document import Document
from xformer_kit.study.report.sections import document
from xformer_kit.study.results import Outcome, Results

VERSIONS = {"python": "3.11.7", "xformer_kit": "0.1.0", "torch": "2.13.0"}


def variant(label="baseline", levels=None, words=(), tuned=(), knob=(), off=0.0, name=None, **cost):
    counted = {
        "params": 600_772,
        "flops": 3.1e13,
        "flops_per_token": 3.8e6,
        "tokens": 8.2e6,
        "steps": 1000,
    }
    return {
        "label": label,
        "name": name or label,
        "levels": levels or {"placement": "pre"},
        "words": list(words),
        "tuned": list(tuned),
        "cost": counted | cost,
        "knob": list(knob),
        "off": off,
    }


def changed(factor: str, level: str, **more):
    """Returns a variant that changes one factor."""
    return variant(f"{factor}={level}", {factor: level}, [f"{factor}={level}"], **more)


def curve(floor: float, seed: int, steps: int = 1000, every: int = 10, until: int | None = None):
    """Returns curves of losses that fall from 9 to the floor, with the noise of batches; with
    `until`, the training loss rises up to that step, the last.
    """
    draw = random.Random(f"{floor} {seed}")
    at = list(range(every, (until or steps) + 1, every))
    fall = [floor + (9 - floor) * math.exp(-7 * (step / steps) ** 0.5) for step in at]
    noisy = [y + draw.gauss(0, 0.05) for y in fall]
    if until:
        noisy = [y + 4 * (step / until) ** 8 for y, step in zip(noisy, at, strict=True)]
    checked = [i for i, step in enumerate(at) if step % (10 * every) == 0]
    return {
        "train/loss": (at, noisy),
        "val/loss": ([at[i] for i in checked], [fall[i] for i in checked]),
    }


def finished(index: int, seed: int, value: float, steps: int = 1000, **facts) -> Outcome:
    curves = curve(value, seed, steps)
    curves["val/loss"][1][-1] = value
    speed = 15_000 - 700 * (index % 7) + 90 * seed
    measured = {
        "val/loss": value,
        "val/perplexity": math.exp(value),
        "steps": steps,
        "stopped": None,
        "params": 600_772,
        "flops_per_token": 3.8e6,
        "tokens_per_second": speed,
        "peak_memory_bytes": 580_000_000 + 7_000_000 * (index % 5),
        "seconds": 8.2e6 / speed,
        "data_fingerprint": "8ef4",
        "kernels": {"decoder.0-3.attn": "sdpa"},
        "devices": {"kind": "cpu", "processes": 1, "accumulate": 1},
        "versions": VERSIONS,
        "sample": f"The cat of variant {index} sat on\n  the <mat> of seed {seed}.",
    }
    return Outcome(
        index,
        seed,
        f"k{index}s{seed}",
        "finished",
        "",
        steps,
        facts=measured | facts,
        curves=curves,
    )


def diverged(index: int, seed: int, step: int = 240) -> Outcome:
    curves = curve(3.0, seed, until=step)
    why = f"The loss of step {step} is not finite."
    return Outcome(index, seed, f"k{index}s{seed}", "diverged", "", step, why, curves=curves)


def ended(index: int, seed: int, status: str, step: int | None = None, why: str = "") -> Outcome:
    curves = curve(2.5, seed, until=step) if step else {}
    return Outcome(index, seed, f"k{index}s{seed}", status, "", step, why, curves=curves)


def study(variants, outcomes, **node) -> Results:
    defaults = {
        "question": "Does the placement of the norm matter?",
        "name": "placement",
        "claim": None,
        "design": {"name": "one_at_a_time"},
        "budget": {"match": "params", "by": "ffn.width", "tolerance": 0.01},
        "tune": None,
        "metric": "val/loss",
        "margin": None,
    }
    pool = [replace(one, directory=f"outputs/runs/{one.key}") for one in outcomes]
    line = [
        "study=norm_placement",
        "++seed=0",
        "hydra/sweeper=study",
        "hydra.mode=MULTIRUN",
        "hydra.sweep.dir=outputs/runs",
    ]
    return Results(
        defaults | node, line, [], list(variants), pool, folder="outputs/studies/placement"
    )


def placements(seeds: int = 5, **node) -> Results:
    """Returns results in which post is worse by 0.03 at every seed, output differs by noise only,
    and sandwich diverges at the first seed.
    """
    known = [variant(), *(changed("placement", name) for name in ("post", "output", "sandwich"))]
    draw = random.Random(0)
    base = [2.3 + draw.gauss(0, 0.02) for _ in range(seeds)]
    outcomes = []
    for seed, value in enumerate(base):
        shift = [
            0.0,
            0.03 + draw.gauss(0, 0.002),
            draw.gauss(0, 0.004),
            -0.02 + draw.gauss(0, 0.003),
        ]
        outcomes += [
            diverged(i, seed) if i == 3 and seed == 0 else finished(i, seed, value + shift[i])
            for i in range(4)
        ]
    return study(known, outcomes, **node)


def report_of(results: Results) -> Document:
    return document(content(results))


def write(results: Results, root: Path) -> Path:
    """Writes the study's directory and the pool of its runs. Returns the directory."""
    folder, pool = root / "studies" / results.study["name"], root / "runs"
    folder.mkdir(parents=True)
    plan = {
        "study": dict(results.study),
        "pool": "../../runs",
        "command": results.command,
        "components": results.components,
        "variants": results.variants,
        "runs": [{"variant": o.variant, "seed": o.seed, "key": o.key} for o in results.outcomes],
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    for one in results.outcomes:
        _write_run(one, pool / one.key)
    return folder


def _write_run(one: Outcome, directory: Path) -> None:
    if one.status == "open":
        return
    directory.mkdir(parents=True)
    if one.curves:
        found = CsvLog(directory / "metrics.csv", ("step", *one.curves)).open(0)
        values = {name: dict(zip(*line, strict=True)) for name, line in one.curves.items()}
        steps = sorted({step for line in values.values() for step in line})
        rows = [
            {"step": step} | {name: line.get(step) for name, line in values.items()}
            for step in steps
        ]
        found._rewrite([{k: "" if v is None else repr(v) for k, v in row.items()} for row in rows])
    if one.status == "finished":
        (directory / "summary.json").write_text(
            json.dumps(dict(one.facts) | {"run": str(directory)})
        )
    elif one.status in ("diverged", "failed"):
        code = NONFINITE if one.status == "diverged" else 1
        (directory / "ended.json").write_text(
            json.dumps({"code": code, "text": one.why, "step": one.step})
        )


def plain_study(**node):
    return placements(**node)


def partial():
    """Returns results whose last seed has not finished: one run is running, one was stopped, one
    failed, one has not begun.
    """
    complete = placements(3)
    endings = {
        0: ("running", 40, ""),
        1: ("stopped", 70, ""),
        2: ("failed", None, "No space left on device."),
        3: ("open", None, ""),
    }
    outcomes = [
        ended(o.variant, o.seed, *endings[o.variant]) if o.seed == 2 else o
        for o in complete.outcomes
    ]
    return replace(complete, outcomes=outcomes)


def lost():
    """Returns results in which all runs of a variant diverged."""
    known = [variant(), changed("placement", "post")]
    outcomes = [finished(0, s, 2.3 + 0.01 * s) for s in range(3)] + [
        diverged(1, s, 100 + 10 * s) for s in range(3)
    ]
    return study(known, outcomes)


def tuned():
    """Returns results of a tuned learning rate: the baseline is best at the middle rate, post at
    the largest; at its smallest rate it has the best figure in one seed, and diverges in the
    others.
    """
    rates = ["0.001", "0.003", "0.01"]
    known = [
        variant(label, {"placement": level}, words, [f"optim.lr={rate}"])
        for label, level, words in (
            ("baseline", "pre", []),
            ("placement=post", "post", ["placement=post"]),
        )
        for rate in rates
    ]
    means = [2.4, 2.3, 2.5, 2.0, 2.6, 2.35]
    outcomes = [
        (
            diverged(i, seed)
            if i == 3 and seed
            else finished(i, seed, mean + 0.01 * seed + 0.002 * (i * seed % 3))
        )
        for seed in range(3)
        for i, mean in enumerate(means)
    ]
    return study(known, outcomes, tune={"optim.lr": [0.001, 0.003, 0.01]})


def factorial():
    """Returns results in which post adds 0.1, rms adds 0.02, and both together 0.05 more."""
    known, outcomes = [], []
    for i, (placement, norm) in enumerate(itertools.product(["pre", "post"], ["layer", "rms"])):
        levels = {"placement": placement, "norm": norm}
        words = [f"{k}={v}" for k, v in levels.items() if v in ("post", "rms")]
        known.append(variant(", ".join(words) or "baseline", levels, words))
        effect = 0.1 * (placement == "post") + 0.02 * (norm == "rms") + 0.05 * (i == 3)
        outcomes += [
            finished(i, s, 2.3 + 0.02 * s + effect + 0.001 * ((i + 1) * (s + 2) % 5))
            for s in range(5)
        ]
    return study(known, outcomes, design={"name": "factorial"})


LAW = {
    "E": 1.8,
    "A": 60.0,
    "alpha": 0.35,
    "B": 90.0,
    "beta": 0.3,
}  # of the baseline; the other's A is 1.3 times that


def ladder_law(parameters: float, tokens: float, gain: float = 1.0) -> float:
    """Returns the loss E + gain A / parameters^alpha + B / tokens^beta."""
    return (
        LAW["E"] + gain * LAW["A"] * parameters ** -LAW["alpha"] + LAW["B"] * tokens ** -LAW["beta"]
    )


def ladder(multiples=(5, 10, 20), seeds: int = 3, noise: float = 0.002, **node):
    """Returns results of two attentions at five sizes; losses follow known laws, with noise."""
    draw, known, outcomes = random.Random(0), [], []
    for label, level, gain in (("baseline", "multi_head", 1.0), ("attn=linear", "linear", 1.3)):
        for dim, multiple in itertools.product((64, 96, 128, 192, 256), multiples):
            params = 12 * 4 * dim**2 + 256 * dim
            size = {
                "params": params,
                "tokens": multiple * params,
                "flops": 6.0 * multiple * params**2,
                "epochs": 0.4,
            }
            words = [] if level == "multi_head" else ["attn=linear"]
            one = variant(label, {"attn": level}, words, **size)
            rung = {
                "name": f"model.dim={dim} x{multiple}",
                "words": [f"model.dim={dim}"],
                "multiple": float(multiple),
            }
            known.append(one | {"rung": rung | {"steps": 1000}})
            exact = ladder_law(params, multiple * params, gain)
            outcomes += [
                finished(
                    len(known) - 1, s, exact * math.exp(noise * draw.gauss(0, 1)), params=params
                )
                for s in range(seeds)
            ]
    sizes = {
        "name": "ladder",
        "sizes": {"model.dim": [64, 96, 128, 192, 256]},
        "multiples": list(multiples),
        "ahead": 10.0,
    }
    matched = {"match": "none", "by": None, "tolerance": 0.01}
    return study(
        known,
        outcomes,
        **{"design": sizes, "budget": matched, "question": "How do the two grow?"} | node,
    )


KINDS = {
    "plain": plain_study,
    "partial": partial,
    "lost": lost,
    "tuned": tuned,
    "factorial": factorial,
}
