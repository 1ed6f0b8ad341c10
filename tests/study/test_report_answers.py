"""Reports: comparisons of variants, with tuning, factorial effects and matched budgets."""

from dataclasses import replace

import pytest
from studies import (
    changed,
    factorial,
    finished,
    placements,
    plain_study,
    study,
    tuned,
    variant,
)

from tests.study.report_pages import Page
from xformer_kit.study.report.content import content
from xformer_kit.study.report.html import html
from xformer_kit.study.report.markdown import markdown
from xformer_kit.study.report.sections import document


def test_higher_is_better_decides_the_verdict_of_an_own_metric():
    def verdict(higher):
        known = placements(metric="val/surprise", higher_is_better=higher)
        own = [
            replace(o, facts={**o.facts, "val/surprise": o.facts.get("val/loss")})
            for o in known.outcomes
        ]
        return content(replace(known, outcomes=own)).variants[1].verdict.outcome

    assert [verdict(higher) for higher in (False, True)] == ["worse", "better"]


def test_a_study_without_a_name_and_a_question_is_named_by_its_factors():
    named = document(content(placements(question=None)))
    assert (named.title, named.subtitle.split(":")[0]) == ("placement", "Study placement")
    page = document(content(placements(name="study", question=None)))
    assert page.title == "Study of placement" and page.subtitle.startswith("4 variants x 5 seeds")


def test_tables_have_no_more_digits_than_intervals_support():
    """Half of the interval is 2.2 nats of a mean, 0.15 nats of the difference, 3.4 of the effect
    size, and 21,000 tokens/s.
    """
    known = [variant(), changed("placement", "post")]
    shift = [0.0, 0.12, -0.1, 0.05]
    runs = [
        finished(i, s, 4.123456 + s + i * (0.5 + shift[s]), tokens_per_second=12_345.0 + 1e4 * s)
        for i in range(2)
        for s in range(4)
    ]
    found = [
        table
        for section in document(content(study(known, runs))).sections
        for table in section.tables
    ]
    cells = {table.title: dict(zip(table.header, table.rows[-1], strict=True)) for table in found}
    assert cells["Means"]["mean"] == "6.1"
    assert cells["Differences from the baseline"]["difference"] == "+0.52"
    assert cells["Differences from the baseline"]["effect size"] == "4.0"
    assert cells["All runs"]["seed 0"] == "4.62"
    assert cells["Cost"]["tokens/s"] == "27k"


def test_a_level_without_a_name_is_its_overrides():
    base = variant("baseline", {"stacks": "baseline"}, ["model=decoder", "mask=prefix"])
    known = [base, variant("stacks=two", {"stacks": "two"}, ["model=encoder_decoder"])]
    report = content(
        study(known, [finished(i, s, 2.3 + i + 0.01 * s * i) for i in range(2) for s in range(2)])
    )
    assert report.sentences[0].startswith("baseline (model=decoder, mask=prefix) has val/loss")


def test_variants_are_compared_at_their_own_best_point():
    """The smallest rate of post has the best mean, but two of its three runs diverged: that
    is not its best.
    """
    report = content(tuned())
    assert [one.best.tuned for one in report.variants] == [("optim.lr=0.003",), ("optim.lr=0.01",)]
    assert report.variants[1].verdict.difference.mean == pytest.approx(
        0.05 + 0.002 * (0 + 5 % 3 + 10 % 3 - 1 - 2) / 3
    )
    assert report.tuning[0].startswith(
        "Every variant was run at the same 3 points of optim.lr, and is compared at its own best"
    )
    assert report.tuning[1:] == [
        "The best optim.lr of placement=post, 0.01, is the largest that was tried: the optimum may"
        " be outside of the range."
    ]
    points = [row for row in Page(html(document(report))).rows if row[-1:] == ["best"]]
    assert [row[:2] for row in points] == [
        ["baseline", "optim.lr=0.003"],
        ["placement=post", "optim.lr=0.01"],
    ]


def test_higher_accuracy_is_better():
    results = tuned()
    shares = [
        replace(
            o, facts={**o.facts, "val/accuracy": 0.9 - o.facts["val/loss"] / 10} if o.facts else {}
        )
        for o in results.outcomes
    ]
    report = content(
        replace(results, study={**results.study, "metric": "val/accuracy"}, outcomes=shares)
    )
    assert [one.best.tuned for one in report.variants] == [("optim.lr=0.003",), ("optim.lr=0.01",)]
    assert "points" in report.sentences[1] and "higher is better" in markdown(document(report))


def test_main_effects_and_interactions_of_a_factorial():
    """Post adds 0.1 with the base norm, 0.15 with rms: 0.125 on average, interaction 0.05."""
    report = content(factorial())
    found = {effect.name: effect.difference.mean for effect, _, _ in report.effects}
    assert found == pytest.approx(
        {"placement=post": 0.125, "norm=rms": 0.045, "placement=post with norm=rms": 0.05}, abs=2e-3
    )
    page = Page(html(document(report))).text
    assert all(" ".join(sentence.split()) in page for *_, sentence in report.effects)
    assert content(plain_study()).effects == []


def test_the_headline_warns_of_unequal_times():
    known = [variant(), changed("placement", "post")]

    def answer(what, share):
        of = [(0, 2.0, 500.0), (1, 1.5, 500.0 * share)]
        took = [
            finished(i, seed, value, seconds=seconds)
            for i, value, seconds in of
            for seed in range(2)
        ]
        return content(
            study(known, took, budget={"match": what, "by": "trainer.max_steps", "tolerance": 0.01})
        ).sentence

    sentence = (
        "Warning: the times of the runs are not equal, although seconds were matched; compared with"
        " the baseline, placement=post +32 %. "
    )
    assert sentence in answer("seconds", 1.32)
    assert "times of the runs" not in answer("seconds", 1.05) + answer("flops", 1.32)


def test_sentence_on_the_matched_budget():
    def of(*offs, **budget):
        known = [
            variant(),
            *(
                changed("placement", f"p{i}", off=off, params=600_772 * (1 + off))
                for i, off in enumerate(offs)
            ),
        ]
        outcomes = [finished(i, 0, 2.0 + i) for i in range(len(known))]
        whole = {"match": "params", "by": "ffn.width", "tolerance": 0.01} | budget
        return content(study(known, outcomes, budget=whole)).matched

    assert (
        of(0.002, -0.004)
        == "Parameters were matched to the baseline's by ffn.width: the largest remaining"
        " difference is 0.4 % (placement=p1; tolerance 1 %)."
    )
    assert (
        of(0.0) == "Parameters are equal to the baseline's, matched by ffn.width (tolerance 1 %)."
    )
    assert of(0.003, match="seconds", by="trainer.max_steps").endswith(
        "They were planned from the measured time of a step. The largest difference in measured"
        " time from the baseline is +4.9 % (placement=p0)."
    )
    assert (
        of(0.25, match="none")
        == "No budget was matched. The largest difference in parameters from the baseline is +25 %"
        " (placement=p0)."
    )


def test_a_run_whose_metric_is_nan_counts_as_diverged():
    known = [variant(), changed("placement", "post")]
    outcomes = [finished(i, s, 2.3 + i + 0.1 * s) for i in range(2) for s in range(3)]
    outcomes[3] = replace(outcomes[3], facts={**outcomes[3].facts, "val/loss": float("nan")})
    report = content(study(known, outcomes))
    assert (
        report.variants[1].runs.diverged == {0: 1000}
        and report.variants[1].verdict.difference.count == 2
    )
