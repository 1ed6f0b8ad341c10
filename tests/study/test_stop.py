"""Variants that are stopped: rarely one that is no worse, always the same, marked everywhere, never
called equal or better.
"""

import csv
import io
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import numpy as np
import pytest

from tasks.study.progress import progress
from tasks.study.report import report
from tasks.study.state import State
from tasks.study.stopping import StopDecision, decide
from tests.messages import messages
from tests.studies import (
    changed,
    diverged,
    ended,
    finished,
    report_of,
    study,
    variant,
    write,
)
from xformer_kit.study import stop, study_node
from xformer_kit.study.answer import answer
from xformer_kit.study.metric import metric
from xformer_kit.study.report.content import content
from xformer_kit.study.report.markdown import markdown
from xformer_kit.study.statistics import one_sided_p, paired_difference

RULE = {"after": 3, "margin": 0.1, "alpha": 0.05}
SHIFTS = {"placement=post": 0.5, "placement=output": 0.0, "placement=sandwich": 0.05}


def results(seeds=5, rule=RULE, **node):
    """Post is far worse at every seed, output alike, sandwich worse by less than the margin."""
    known = [variant(), *(changed("placement", name.partition("=")[2]) for name in SHIFTS)]
    shifts = [0.0, *SHIFTS.values()]
    draw = np.random.default_rng(0).normal(0, 0.01, (4, seeds))
    outcomes = [
        finished(i, s, 2.3 + shifts[i] + 0.02 * s + float(draw[i, s]))
        for s in range(seeds)
        for i in range(4)
    ]
    return study(known, outcomes, stop=rule, **node)


def test_only_what_is_worse_by_more_than_the_margin_is_stopped():
    found = stop.apply_stopping_rule(results())
    assert list(found.stopped) == ["placement=post"]
    assert (
        found.stopped["placement=post"]
        == "placement=post was stopped after 3 of 5 seeds: it is worse than baseline by 0.5 nats,"
        " more than the margin of 0.1 nats (3 seeds, one-sided t test, p < 0.0001, look 1 of 2)."
    )
    assert [(o.seed, o.status) for o in found.outcomes_of(1)][2:] == [
        (2, "finished"),
        (3, "left out"),
        (4, "left out"),
    ]
    assert (
        stop.apply_stopping_rule(found) == found and stop.stopped_variants(results(rule=None)) == {}
    )


def test_stopping_with_a_metric_where_higher_is_better():
    whole = results(metric="val/accuracy", margin=0.1)
    shares = [
        replace(o, facts={**o.facts, "val/accuracy": o.facts["val/loss"] - 2})
        for o in whole.outcomes
    ]
    assert stop.stopped_variants(replace(whole, outcomes=shares)) == {}
    turned = [
        replace(o, facts={**o.facts, "val/accuracy": 3 - o.facts["val/loss"]})
        for o in whole.outcomes
    ]
    assert list(stop.stopped_variants(replace(whole, outcomes=turned))) == ["placement=post"]


@pytest.mark.parametrize("true", [0.0, 0.1])
def test_false_positive_rate_of_stopping_is_at_most_alpha(true):
    """1,000 studies of 8 seeds, all looks, at no difference and at one as large as the margin.
    Three standard errors: 2 %.
    """
    rng, measured = np.random.default_rng(1), metric("val/loss")
    looks, margin = range(2, 8), 0.1
    stopped = 0
    for noise in rng.normal(true, 0.05, (1000, 8)):
        ps = [_p(noise[:count], margin, measured) for count in looks]
        stopped += min(ps) <= 0.05 / len(looks)
    assert stopped / 1000 <= 0.05 + 0.02
    assert (stopped / 1000 > 0.01) == (
        true == 0.1
    )  # at the margin the rule is used up, below it is strict


def _p(differences, margin, measured):
    count, mean, sd = len(differences), float(differences.mean()), float(differences.std(ddof=1))
    return one_sided_p(SimpleNamespace(count=count, mean=mean, sd=sd), -margin, -measured.sign)


def test_the_p_is_that_of_scipy():
    from scipy.stats import ttest_1samp

    base, mine = {s: 2.0 + 0.1 * s for s in range(4)}, {0: 2.2, 1: 2.4, 2: 2.35, 3: 2.5}
    differences = [mine[s] - base[s] for s in base]
    known = ttest_1samp(differences, 0.05, alternative="greater").pvalue
    assert one_sided_p(paired_difference(base, mine), -0.05, -1) == pytest.approx(known)


def test_later_runs_change_no_decision_and_no_report():
    """Seeds after the one that decided are there, half there, or not begun: the report is the
    same.
    """
    whole = results()

    def late(status):
        return [
            ended(o.variant, o.seed, status) if o.variant == 1 and o.seed > 2 else o
            for o in whole.outcomes
        ]

    pages = {
        markdown(report_of(stop.apply_stopping_rule(replace(whole, outcomes=late(status)))))
        for status in ("open", "running", "failed")
    }
    assert pages == {markdown(report_of(stop.apply_stopping_rule(whole)))}
    reordered = replace(whole, outcomes=sorted(whole.outcomes, key=lambda o: (o.seed, -o.variant)))
    assert stop.stopped_variants(reordered) == stop.stopped_variants(whole)


def test_nothing_is_decided_before_the_seeds_are_over():
    whole = results()
    for missing in (0, 1):  # of the baseline, of the variant
        component = [
            ended(o.variant, o.seed, "running") if (o.variant, o.seed) == (missing, 1) else o
            for o in whole.outcomes
        ]
        assert "placement=post" not in stop.stopped_variants(replace(whole, outcomes=component))
        held = stop.undecided_run_keys(replace(whole, outcomes=component))
        assert {"k1s3", "k1s4"} <= held and not held & {"k1s2", "k0s3"}
        assert ("k2s3" in held) == (missing == 0)


def test_variants_of_a_claim_are_not_stopped():
    claim = {"paper": "", "expect": {"variant": "placement=post", "is": "worse"}}
    found = stop.apply_stopping_rule(results(claim=claim))
    assert found.stopped == {} and content(found).claim.outcome == "held"


def test_diverged_runs_are_not_values_of_the_stopping_test():
    """Without two figures there is no t; with two of four seeds there is, one look later."""
    whole = results()
    lost = [diverged(1, o.seed) if o.variant == 1 and o.seed < 2 else o for o in whole.outcomes]
    assert stop.stopped_variants(replace(whole, outcomes=lost))["placement=post"].seeds == 4
    gone = [diverged(1, o.seed) if o.variant == 1 else o for o in whole.outcomes]
    assert stop.stopped_variants(replace(whole, outcomes=gone)) == {}


def test_a_stopped_variant_is_not_tested_but_counts_in_the_family():
    """Others are corrected as if it had not passed, and it is neither better nor equal, however its
    runs lie.
    """
    said = content(stop.apply_stopping_rule(results()))
    post, output, _ = (arm.verdict for arm in said.variants[1:])
    assert (post.outcome, post.p, post.p_margin) == ("stopped", None, None)
    raw = [
        paired_difference(said.variants[0].runs.values, arm.runs.values).p
        for arm in said.variants[2:]
    ]
    assert output.p == pytest.approx(
        min(1, max(3 * min(raw), 2 * raw[0] if raw[0] > raw[1] else 0))
    )
    better = replace(said.variants[1].runs, values={s: 1.0 + 0.01 * s for s in range(3)})
    verdict = answer(said.variants[0].runs, [better], metric("val/loss"), margin=9.0).verdicts[0]
    assert (
        verdict.outcome == "stopped"
        and "better" not in verdict.sentence
        and "equivalent" not in verdict.sentence
    )


def test_stopped_variants_are_marked_in_all_forms(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    folder = write(results(), tmp_path)
    report(folder)
    sentence = stop.stopped_variants(results())["placement=post"].sentence
    shown = " ".join(capsys.readouterr().out.split())
    page, text = (folder / "report.html").read_text(), (folder / "report.md").read_text()
    for form in (unescape(text).replace("\xa0", " ") for text in (shown, page, text)):
        assert sentence in form and "post: worse, stopped before the last seed" in form
    assert (
        '<li class="stopped"><span class="tag">stopped early</span>' in page
        and ">(stopped\xa0early)<" in page  # the second line of a name in a figure
    )
    assert (
        "| stopped early |" in text and "| left out | left out |" in text and "| 3 of 5 |" in text
    )
    assert "too large on average" in text and "Partial" not in text
    rows = list(csv.DictReader(io.StringIO((folder / "runs.csv").read_text())))
    assert [r["status"] for r in rows if r["variant"] == "placement=post"][3:] == ["left out"] * 2
    row = list(csv.DictReader(io.StringIO((folder / "variants.csv").read_text())))[1]
    assert (row["outcome"], row["p"], row["left_out"], row["finished"]) == ("stopped", "", "2", "3")
    found = progress(folder)
    assert found["counts"]["left out"] == 2 and found["counts"]["finished"] == 18


def test_runs_of_stopped_variants_are_left_out():
    whole = results()
    plan = {"study": whole.study, "command": [], "components": [], "variants": whole.variants}
    plan["runs"] = [{"variant": o.variant, "seed": o.seed, "key": o.key} for o in whole.outcomes]
    late = {o.key for o in whole.outcomes if o.seed > 2}
    states = {
        o.key: State("open") if o.key in late else State("finished", facts=dict(o.facts))
        for o in whole.outcomes
    }
    found = decide(plan, states)
    assert (
        found.left_out == {"k1s3", "k1s4"}
        and found.waiting == {"k2s4", "k3s4"}
        and list(found.reasons) == ["placement=post"]
    )
    assert decide(plan | {"study": {**whole.study, "stop": None}}, states) == StopDecision()


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (
            {"stop": {"after": 5}},
            "study.stop.after: must be below the number of seeds; got 5 of 5 seeds.",
        ),
        ({"stop": {"after": 1}}, "study.stop.after: must be at least 2 seeds; got 1."),
        (
            {"stop": {"alpha": 2.0}},
            "study.stop.alpha: must be at least 1e-06 and below 1; got 2.0.",
        ),
        (
            {"stop": {"afer": 2}},
            "study.stop.afer: the config has no such key. Did you mean 'after'?",
        ),
        (
            {"stop": {}, "design": "factorial"},
            "study.stop: 'factorial' averages effects over combinations at every seed",
        ),
    ],
)
def test_invalid_stopping_rules_are_refused(more, fault):
    node = {"factors": {"placement": ["post"]}, "baseline": {"placement": "pre"}} | more
    found = messages(study_node.faults(node))
    assert len(found) == 1 and found[0].startswith(fault), found
