"""Ladders: rungs are composed, their steps make the tokens, and a known law comes back through the
whole report.
"""

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from drawings import assert_ticks_are_exact

from tasks.study import ladder_steps
from tasks.study.dry_run import show
from tasks.study.report import report
from tasks.study.resolve import Costs, resolve
from tests.messages import messages
from tests.studies import LAW, ended, ladder, ladder_law, report_of, write
from xformer_kit.config import preflight
from xformer_kit.inspect.cost import tokens
from xformer_kit.registry import ConfigError
from xformer_kit.study import study_node
from xformer_kit.study.report.content import content
from xformer_kit.study.report.html import html
from xformer_kit.study.report.markdown import markdown
from xformer_kit.study.report.sections import document
from xformer_kit.study.results import title
from xformer_kit.study.scaling import Point, fit

pytestmark = pytest.mark.extended

TINY = [
    "study=norm_placement",
    "experiment=copy",
    "model.layers=1",
    "attn.heads=2",
    "data.batch_size=2",
    "schedule.warmup=20",
    "logger=none",
]
SIZES = {"name": "ladder", "sizes": {"model.dim": [8, 12, 16]}, "multiples": [5, 10]}


def node(**more):
    return {
        "claim": None,
        "budget": {},
        "seeds": 1,
        "design": SIZES,
        "factors": {},
        "baseline": {},
    } | more


def planned(*words, **more):
    line = preflight([*TINY, *words])
    asked = line.study | node(**more)
    if faults := list(study_node.faults(asked)):
        raise ConfigError(faults)
    return resolve(study_node.complete(asked, "here"), line.compose, list(words))


@pytest.fixture(scope="module")
def plan():
    return planned(factors={"attn": ["linear"]}, baseline={"attn": "multi_head"})


def test_every_variant_is_run_on_every_rung(plan):
    rungs = [f"model.dim={dim} x{multiple}" for dim in (8, 12, 16) for multiple in (5, 10)]
    assert [v.title for v in plan.variants] == [
        f"{name} {rung}" for name in ("baseline", "attn=linear") for rung in rungs
    ]
    assert len({run.key for run in plan.runs}) == 12
    assert plan.runs[1].words == [
        "attn=multi_head",
        "model.dim=8",
        "trainer.max_steps=68",
        "seed=0",
    ]
    assert [title(v) for v in plan.plain()["variants"]] == [v.title for v in plan.variants]


def test_steps_make_the_tokens_of_their_rung(plan):
    """As near as whole steps come, of the variant's own parameters."""
    for variant in plan.variants:
        asked = variant.rung.multiple * variant.cost["params"]
        assert variant.cost["tokens"] == tokens(variant.config, variant.rung.steps)
        assert abs(variant.cost["tokens"] - asked) <= tokens(variant.config, 1) / 2
        assert abs(variant.cost["tokens"] / asked - 1) <= 0.01


def test_a_dry_run_shows_sizes_tokens_and_steps(plan, capsys):
    timed = [replace(v, cost={**v.cost, "seconds": 2.0, "overhead": 0.0}) for v in plan.variants]
    place = {v.title: v for v in timed}
    show(
        replace(
            plan,
            variants=timed,
            runs=[replace(run, variant=place[run.variant.title]) for run in plan.runs],
        ),
        0.0,
    )
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"baseline model.dim=16 x10 4\.4\dk \S+ 44\.\dk 220 ", said)
    assert re.search(
        r"x5: 5 tokens per parameter, which determine the steps\. Laws are extrapolated to 44\.\dk"
        r" parameters\.",
        said,
    )
    assert "Warm-up, schedule.warmup=20, is 59 % of the shortest run" in said


def test_on_each_rung_a_budget_is_that_of_the_baseline():
    """FLOPs of a rung depend on its steps, and these on the parameters that the knob turns."""
    matched = {"match": "flops", "by": "ffn.width", "tolerance": 0.03}
    design = {"name": "ladder", "sizes": {"model.dim": [4, 8, 12, 16]}, "multiples": [10]}
    more = {"factors": {"attn": ["linear"]}, "baseline": {"attn": "multi_head"}, "design": design}
    found = planned(budget=matched, **more).variants
    for base, other in zip(found[:4], found[4:], strict=True):
        assert other.rung.words == base.rung.words and other.knob
        assert other.cost["flops"] == pytest.approx(base.cost["flops"], rel=0.03)
        assert other.cost["tokens"] == pytest.approx(
            other.rung.multiple * other.cost["params"], rel=0.03
        )


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (
            {"budget": {"match": "tokens"}},
            "study.budget.by: sets trainer.max_steps, as the ladder does at every size.",
        ),
        (
            {"budget": {"match": "params", "by": "model.dim"}},
            "study.budget.by: sets model.dim, as the ladder does at every size.",
        ),
        (
            {"factors": {"model.dim": [4]}, "baseline": {"model.dim": 8}},
            "study.factors.model.dim: sets model.dim, as the",
        ),
        (
            {"tune": {"trainer.max_steps": [5, 6]}},
            "study.tune.trainer.max_steps: sets trainer.max_steps, as the ladder",
        ),
        (
            {"metric": "test/accuracy"},
            "study.metric: a ladder fits a loss that falls to a floor above 0, and test/accuracy",
        ),
        (
            {"design": SIZES | {"sizes": {"model.dim": [8, 12, 16], "attn.heads": [2]}}},
            (
                "study.design.sizes: must map overrides to their values, as many of each as there"
                " are sizes; got 3 of model.dim, 1 of attn.heads"
            ),
        ),
        (
            {"design": SIZES | {"multiples": [5, 0]}},
            "study.design.multiples: must be different numbers above 0; got [5, 0].",
        ),
        ({"design": "ladder"}, "study.design.sizes: design 'ladder' needs this option"),
        ({"design": SIZES | {"ahead": 1}}, "study.design.ahead: must be above 1; got 1."),
    ],
)
def test_contradictory_ladders_are_refused(more, fault):
    found = messages(study_node.faults(node(**more)))
    assert len(found) == 1 and found[0].startswith(fault), found


@pytest.mark.parametrize(
    ("design", "fault"),
    [
        ({"multiples": [5]}, "study.design: A scaling law needs at least 4 numbers of parameters;"),
        (
            {"sizes": {"model.dim": [8, 12]}},
            "study.design: A scaling law needs at least 3 numbers of parameters; got 2.",
        ),
        (
            {"sizes": {"model.dim": [8, 12, 12]}},
            "study.design: A scaling law needs at least 3 numbers of parameters; got 2.",
        ),
        (
            {"sizes": {"model.dim": [8, 12, 16, 16]}},
            "study.design.sizes: baseline model.dim=16 x5 and baseline model.dim=16 x5 are the",
        ),
    ],
)
def test_sizes_that_identify_no_law_are_refused(design, fault):
    with pytest.raises(ConfigError) as error:
        planned(design=SIZES | design)
    assert error.value.messages[0].startswith(fault), error.value.messages


def test_an_invalid_size_is_refused_with_its_path():
    with pytest.raises(ConfigError) as error:
        planned(design=SIZES | {"sizes": {"model.dim": [8, 11, 16]}})
    assert list(error.value.messages) == [
        "attn.heads: must divide model.dim; got 2 and 11. Try model.dim=12, or set attn.head_dim."
        " [variant baseline model.dim=11]"
    ]


def test_rungs_that_cannot_be_trained_are_refused(plan):
    first, costs = plan.variants[0], Costs()
    (fault,) = messages(
        ladder_steps.faults(
            plan.variants, ["study=here", "++trainer.max_steps=9", "trainer.val_every=5"]
        )
    )
    assert fault.startswith(
        "trainer.max_steps: is set by the study at every size; got trainer.max_steps=9. Leave"
        " it out"
    )
    with pytest.raises(
        ConfigError,
        match=r"^study.design.multiples: 5 tokens per parameter are 6,840 tokens, which steps of",
    ):
        ladder_steps.with_steps(first, 1e-3, costs)
    short = {
        **first.config,
        "trainer": {**first.config["trainer"], "max_epochs": 1, "limit_train_batches": 10},
    }
    with pytest.raises(
        ConfigError,
        match=r"^trainer.max_epochs: ends the run after 10 steps, and its rung has 34\. Set",
    ):
        ladder_steps.with_steps(replace(first, config=short), 0.01, costs)
    limited = {**first.config, "trainer": {**first.config["trainer"], "max_tokens": 10**6}}
    with pytest.raises(ConfigError, match=r"^trainer.max_tokens: is not used, since the ladder"):
        ladder_steps.with_steps(replace(first, config=limited), 0.01, costs)
    steep = [replace(v, cost={**v.cost, "tokens": 20 * v.cost["params"]}) for v in plan.variants]
    assert messages(ladder_steps.law_faults(steep))[0].startswith(
        "study.design: A scaling law of parameters and tokens needs at least 6 pairs"
    )


@pytest.fixture(scope="module")
def report_content():
    return content(ladder())


def test_intervals_contain_the_known_laws(report_content):
    """What the fit is asked: parameters and tokens of each run, not those of the top rung."""
    base, other = report_content.laws.variants
    for mine, factor in ((base, LAW["A"]), (other, 1.3 * LAW["A"])):
        truth = LAW | {"A": factor}
        assert mine.law.points == 45 and mine.law.intervals.keys() == truth.keys()
        for name, (low, high) in mine.law.intervals.items():
            reach = 0.5 * (
                high - low
            )  # a 95 % interval misses one in twenty; none misses by half of itself
            assert low - reach <= truth[name] <= high + reach, (mine.name, name, low, high)
        assert mine.law.alpha == pytest.approx(truth["alpha"], abs=0.06)
    size, read = report_content.laws.parameters, report_content.laws.tokens
    assert (
        size == pytest.approx(10 * max(step.parameters for step in base.steps))
        and read == 20 * size
    )
    assert base.prediction.low <= ladder_law(size, read) <= base.prediction.high
    assert (
        other.difference.low
        <= ladder_law(size, read, 1.3) - ladder_law(size, read)
        <= other.difference.high
        and other.difference.low > 0
    )


def test_intervals_of_predictions_contain_the_truth(report_content):
    """Laws of 20 other draws, each asked at 10 times the largest size; fewer than 14 of 20 at 90 %
    have a chance of 1 %.
    """
    size, held = report_content.laws.parameters, 0
    exact = [(step.parameters, step.tokens) for step in report_content.laws.variants[0].steps]
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(0, 0.002, len(exact))
        points = [
            Point(n, d, ladder_law(n, d) * np.exp(e))
            for (n, d), e in zip(exact, noise, strict=True)
        ]
        there = fit(points, resamples=60).predict(size, 20 * size)
        held += there.low <= ladder_law(size, 20 * size) <= there.high
    assert held >= 14


def test_the_report_of_a_ladder_in_all_forms(report_content, tmp_path, capsys):
    folder = write(ladder(), tmp_path)
    report(folder)
    shown = " ".join(capsys.readouterr().out.split())
    assert report_content.sentence.startswith(
        "Extrapolated to 10 times the largest size, the scaling laws predict val/loss:"
        " attn=multi_head 2.1"
    )
    assert (
        "At the top rung (model.dim=256 x20): Compared with attn=multi_head, linear is worse by "
        in report_content.sentence
    )
    page, text = (folder / "report.html").read_text(), (folder / "report.md").read_text()
    for said in (report_content.sentence, *report_content.sentences):
        assert said in shown and said.replace("[", "\\[").replace("]", "\\]") in text
    assert page.count("<svg") >= 3 and 'id="laws-title"' in page
    assert 'id="laws-compute-title"' in page
    assert "Extrapolated to 10 times" in page and "where no run was made" in text
    base, other = csv.DictReader(io.StringIO((folder / "laws.csv").read_text()))
    law = report_content.laws.variants[0].law
    assert (
        float(base["alpha"]) == law.alpha and float(base["alpha_low"]) == law.intervals["alpha"][0]
    )
    assert (base["difference"], other["runs"]) == ("", "45")
    runs = list(csv.DictReader(io.StringIO((folder / "runs.csv").read_text())))
    assert len(runs) == 90 and runs[0]["rung"] == "model.dim=64 x5" and runs[0]["multiple"] == "5.0"


def test_ticks_of_the_laws_are_exact(report_content):
    drawn = {picture.name: picture for picture in document(report_content).figures}
    for name in ("laws", "laws compute"):
        with drawn[name].drawn() as figure:
            assert_ticks_are_exact(figure)


def test_an_unfinished_ladder_has_no_law():
    """One variant stands on three sizes of one multiple, the other on all: only that one has a
    law.
    """
    whole = ladder(multiples=(20,))
    kept = [
        ended(o.variant, o.seed, "open") if o.variant < 5 and o.variant > 2 else o
        for o in whole.outcomes
    ]  # two sizes of the baseline are open
    found = content(replace(whole, outcomes=kept))
    assert (
        found.laws.variants[0].law is None
        and found.laws.variants[1].law is not None
        and found.laws.variants[1].difference is None
    )
    assert found.sentences[0].startswith(
        "baseline has no scaling law yet. A scaling law needs at least 4 numbers of parameters; got"
        " 3."
    )
    assert found.partial.startswith("Partial: 6 of 30 runs have not finished (6 not started).")
    assert "no scaling law yet" in html(document(found))
    assert "no scaling law yet" in markdown(document(found))


def test_an_undetermined_law_is_not_extrapolated():
    """The same losses whatever the size: alpha is at its bound, in the sentence as in the
    tables.
    """
    whole = ladder()
    flat = [replace(o, facts={**o.facts, "val/loss": 3.0 + 0.01 * o.seed}) for o in whole.outcomes]
    found = content(replace(whole, outcomes=flat))
    assert found.laws.variants[0].law.at_bounds and not found.laws.variants[0].determined
    assert "is not extrapolated" in found.sentences[0]
    assert found.sentence.startswith("The runs do not determine a scaling law yet.")
    assert "Extrapolation to" in markdown(report_of(whole))
    assert "Extrapolation to" not in markdown(document(found))


def test_at_one_number_of_tokens_per_parameter_the_law_is_one_of_size():
    found = content(ladder(multiples=(20,)))
    law = found.laws.variants[0].law
    assert (
        law.beta is None
        and law.intervals.keys() == {"E", "A", "alpha"}
        and found.laws.variants[0].optimum is None
    )
    assert "L(N) = " in found.sentences[0] and "along D = 20 N" in markdown(document(found))
