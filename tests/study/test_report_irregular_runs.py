"""Reports: unfinished studies, runs that ended early, other data or kernels, and samples."""

from dataclasses import replace

from studies import (
    changed,
    ended,
    partial,
    plain_study,
    report_of,
    study,
    variant,
)

from tests.study.report_pages import Page
from xformer_kit.study.report.content import content
from xformer_kit.study.report.html import html
from xformer_kit.study.report.markdown import markdown
from xformer_kit.study.report.sections import document


def test_samples_are_of_a_seed_that_all_variants_have():
    assert [(name, seed) for name, seed, _ in content(plain_study()).samples] == [
        (name, 1)
        for name in ("baseline", "placement=post", "placement=output", "placement=sandwich")
    ]


def test_a_partial_report_begins_with_a_warning():
    report = content(partial())
    assert (
        report.partial
        == "Partial: 4 of 12 runs have not finished (1 running, 1 interrupted, 1 not started,"
        " 1 failed). Results are those of finished runs, and may change."
    )
    text = markdown(document(report))
    assert (
        text.index(report.partial) < text.index(report.sentence)
        and report.partial in Page(html(document(report))).text
    )
    assert content(plain_study()).partial == "" and "Partial" not in markdown(
        report_of(plain_study())
    )


def test_a_study_without_finished_runs_has_a_report():
    known = [variant(), changed("placement", "post")]
    report = content(study(known, [ended(i, s, "open") for i in range(2) for s in range(3)]))
    assert (
        "Partial: 6 of 6 runs have not finished (6 not started)."
        in Page(html(document(report))).text
    )
    assert report.sentences[0].startswith("baseline (placement=pre) has no finished run yet.")


def test_runs_that_ended_early_are_listed():
    results = plain_study()
    first = replace(
        results.outcomes[0], facts={**results.outcomes[0].facts, "stopped": "after 3 hours"}
    )
    report = content(replace(results, outcomes=[first, *results.outcomes[1:]]))
    assert [(one.status, one.why) for one in report.irregular_runs if one.name == "baseline"] == [
        ("ended early", "after 3 hours")
    ]


def test_notes_on_different_data_and_kernels():
    results = plain_study()
    changed_ = replace(
        results.outcomes[1],
        facts={**results.outcomes[1].facts, "data_fingerprint": "x", "kernels": {"a": "flex"}},
    )
    report = content(
        replace(results, outcomes=[results.outcomes[0], changed_, *results.outcomes[2:]])
    )
    assert content(results).notes == []
    assert report.notes[0] == "Not all runs used the same data: their fingerprints differ."
    assert "placement=post: flex, sdpa" in report.notes[1]
