"""Reports of studies that nobody trained: what they must say, and that their forms say the same."""

import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy import stats
from studies import (
    KINDS,
    changed,
    ended,
    factorial,
    finished,
    partial,
    placements,
    plain_study,
    report_of,
    study,
    tuned,
    variant,
)

from xformer_kit.registry import ConfigError
from xformer_kit.study.report import csv_files
from xformer_kit.study.report.content import content
from xformer_kit.study.report.document import address
from xformer_kit.study.report.html import html
from xformer_kit.study.report.markdown import fenced, markdown, plain
from xformer_kit.study.report.plots import front
from xformer_kit.study.report.sections import document
from xformer_kit.study.report.tables import OUTCOMES

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Text, tables and addresses of a page; every element must be closed where it belongs."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.words, self.rows, self.links, self.ids = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [
            v
            for k, v in found.items()
            if k in ("src", "href", "xlink:href", "srcset", "action", "data")
        ]
        self.ids += [found["id"]] if "id" in found else []
        self.links += re.findall(r"url\(([^)]*)\)", " ".join(filter(None, found.values())))
        assert tag != "script" and not any(k.startswith("on") for k in found)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.words.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        if self.open and self.open[-1] == "style":
            assert "url(" not in data and "@import" not in data

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def markdown_rows(text: str) -> list[list[str]]:
    """Cells of all tables, unescaped."""
    signs = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}
    split = [
        re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| ")
    ]
    return [
        [re.sub(r"\\(.)|&\w+;", lambda m: m[1] or signs[m[0]], cell.strip()) for cell in row]
        for row in split
        if not set("".join(row)) <= set("-: ")
    ]


@pytest.fixture(scope="module", params=KINDS)
def made(request):
    """(results, content, page, Markdown) of a study of each kind."""
    results = KINDS[request.param]()
    said = content(results)
    return results, said, Page(html(document(said))), markdown(document(said))


def test_every_variant_and_every_run_that_went_wrong_is_in_all_forms(made):
    results, said, page, text = made
    runs, variants = rows_of(csv_files.runs(results)), rows_of(csv_files.variants(said))
    assert len(runs) == len(results.outcomes) and len(variants) == len(said.variants)
    unescaped = {tuple(row) for row in markdown_rows(text)}
    for variant_ in results.variants:
        assert variant_["name"] in page.text and plain(variant_["name"]) in text
        assert variant_["name"] in {row["variant"] for row in variants}
    for one in results.outcomes:
        if one.status == "finished":
            continue
        name = " ".join(
            (results.variants[one.variant]["name"], *results.variants[one.variant]["tuned"])
        )
        (row,) = [row for row in page.rows if row[:2] == [name, str(one.seed)] and len(row) == 5]
        assert tuple(row) in unescaped
        assert one.status in row[2] or one.status == "open"
        assert not one.why or row[4] == one.why
        assert one.step is None or row[3] == str(one.step)
        (row,) = [row for row in runs if row["key"] == one.key]
        assert (row["status"], row["step"], row["why"]) == (
            one.status,
            str(one.step or ""),
            one.why,
        )


def test_the_forms_have_the_same_figures(made):
    """HTML and Markdown show the same cells; those are the figures of variants.csv, rounded."""
    _, said, page, text = made
    assert page.rows == markdown_rows(text)
    rounded = {}
    for row in rows_of(csv_files.variants(said)):
        name = " ".join(filter(None, (row["variant"], row["tuned"])))
        rounded[name] = row
    means = [
        row
        for row in page.rows
        if len(row) == 5 and row[4].endswith(f"of {rounded.get(row[0], {}).get('runs')}")
    ]
    assert len(means) == len(said.variants)
    for name, mean, span, *_ in means:
        _agree(mean, rounded[name]["mean"])
        for shown, column in zip(span.split(" to "), ("low", "high"), strict=False):
            _agree(shown, rounded[name][column])
    differences = [row for row in page.rows if row[-1] in list(OUTCOMES.values())[1:]]
    assert len(differences) == len(said.variants) - 1
    for name, mean, span, effect, *_ in differences:
        _agree(mean, rounded[name]["difference"])
        _agree(effect, rounded[name]["effect_size"])
        for shown, column in zip(
            span.split(" to "), ("difference_low", "difference_high"), strict=False
        ):
            _agree(shown, rounded[name][column])
    for sentence in (said.sentence, *said.sentences):
        assert " ".join(sentence.split()) in page.text and plain(sentence) in text


def _agree(shown: str, exact: str) -> None:
    if shown == "-":
        assert exact == ""
        return
    digits = len(shown.partition(".")[2])
    assert abs(float(shown) - float(exact)) <= 0.5000001 * 10.0**-digits


def test_a_report_needs_nothing_beside_it(made):
    """Addresses are those of the page's own pictures, and the claim's paper."""
    *_, page, _ = made
    assert all(link.startswith("#") for link in page.links)
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links} <= set(page.ids)


def test_a_claim_links_its_paper():
    expect = {"variant": "placement=post", "is": "worse", "than": "baseline"}
    said = content(
        plain_study(claim={"paper": "Xiong et al., 2020, arXiv:2002.04745", "expect": expect})
    )
    assert said.claim.outcome == "held"
    page = Page(html(document(said)))
    assert [link for link in page.links if not link.startswith("#")] == [
        "https://arxiv.org/abs/2002.04745"
    ]
    assert "The claim held. placement=post is worse than baseline" in page.text
    assert "its p is not corrected for the other variants" in page.text
    assert (
        "[Xiong et al., 2020, arXiv:2002.04745](https://arxiv.org/abs/2002.04745)): The claim held."
        in markdown(document(said))
    )


def test_addresses_of_papers():
    assert (
        address("Press et al., 2022, arXiv:2108.12409, section 3")
        == "https://arxiv.org/abs/2108.12409"
    )
    assert address("see https://example.org/a_b.pdf.") == "https://example.org/a_b.pdf"
    assert address("javascript:alert(1)") is None


def test_further_metrics_have_intervals_and_no_verdict():
    """The answer, and every p, is the same whether they are there or not."""
    names = ["val/perplexity", "peak_memory_bytes"]
    results, alone = placements(also=names), content(placements())
    said = content(results)
    assert (said.sentence, said.sentences) == (alone.sentence, alone.sentences)
    assert [arm.verdict for arm in said.variants] == [arm.verdict for arm in alone.variants]
    page, text = Page(html(document(said))), markdown(document(said))
    assert (
        page.rows == markdown_rows(text)
        and "val/perplexity (" not in page.text
        and "Also measured" in page.text
    )
    rows = [row for row in page.rows if len(row) == 6 and row[0] == "placement=post"]
    base, mine = (list(results.values(i, "val/perplexity").values()) for i in (0, 1))
    test = stats.ttest_rel(mine, base)
    (row,) = (
        row for row in rows_of(csv_files.variants(said)) if row["variant"] == "placement=post"
    )
    assert float(row["also.val/perplexity.difference"]) == pytest.approx(
        np.mean(mine) - np.mean(base)
    )
    for name, bound in zip(("low", "high"), test.confidence_interval(), strict=True):
        assert float(row[f"also.val/perplexity.difference_{name}"]) == pytest.approx(bound)
    _agree(rows[0][1], row["also.val/perplexity.mean"])
    _agree(rows[0][3], row["also.val/perplexity.difference"])
    assert rows[1][1:4] == ["587000000", "-", "+7000000"] and "also.val/perplexity.p" not in row
    with pytest.raises(
        ConfigError, match=r"^study\.also: no finished run has 'val/perplexty'\. Did you mean"
    ):
        content(placements(also=["val/perplexty"]))


def test_a_metric_of_ones_own_is_better_the_way_it_is_said():
    def verdict(higher):
        known = placements(metric="val/surprise", higher_is_better=higher)
        own = [
            replace(o, facts={**o.facts, "val/surprise": o.facts.get("val/loss")})
            for o in known.outcomes
        ]
        return content(replace(known, outcomes=own)).variants[1].verdict.outcome

    assert [verdict(higher) for higher in (False, True)] == ["worse", "better"]


def test_a_level_without_a_name_is_its_overrides():
    base = variant("baseline", {"stacks": "baseline"}, ["model=decoder", "mask=prefix"])
    known = [base, variant("stacks=two", {"stacks": "two"}, ["model=encoder_decoder"])]
    said = content(
        study(known, [finished(i, s, 2.3 + i + 0.01 * s * i) for i in range(2) for s in range(2)])
    )
    assert said.sentences[0].startswith("baseline (model=decoder, mask=prefix) has val/loss")


def test_a_question_is_text_and_no_markup():
    question = 'Is <b>post</b> & "pre" | `norm` *worse*? $x_1$ <script>alert(1)</script>'
    known = [variant(), changed("placement", "<i>a</i> & $b$")]
    outcomes = [finished(i, s, 2.3 + i + 0.1 * s * (1 + i)) for i in range(2) for s in range(2)]
    said = content(study(known, outcomes, question=question))
    page, text = Page(html(document(said))), markdown(document(said))
    assert question in page.text and "placement=<i>a</i> & $b$" in page.text
    assert text.startswith(
        r'# Is &lt;b&gt;post&lt;/b&gt; &amp; "pre" \| \`norm\` \*worse\*? $x_1$ &lt;script&gt;'
    )
    assert page.rows == markdown_rows(text)


def test_a_sample_cannot_leave_its_fence():
    assert fenced("a\n```\nb") == "````text\na\n```\nb\n````"
    text = markdown(report_of(plain_study()))
    assert "```text\nThe cat of variant 1 sat on\n  the <mat> of seed 1.\n```" in text


def test_samples_are_of_a_seed_that_all_have():
    assert [(name, seed) for name, seed, _ in content(plain_study()).samples] == [
        (name, 1)
        for name in ("baseline", "placement=post", "placement=output", "placement=sandwich")
    ]


def test_a_partial_study_says_so_first():
    said = content(partial())
    assert (
        said.partial
        == "Partial: 4 of 12 runs have not finished (1 running, 1 stopped half-way, 1 not started,"
        " 1 failed). What follows holds for the runs that have, and may change."
    )
    text = markdown(document(said))
    assert (
        text.index(said.partial) < text.index(said.sentence)
        and said.partial in Page(html(document(said))).text
    )
    assert content(plain_study()).partial == "" and "Partial" not in markdown(
        report_of(plain_study())
    )


def test_a_study_that_has_just_begun_has_a_report_too():
    known = [variant(), changed("placement", "post")]
    said = content(study(known, [ended(i, s, "open") for i in range(2) for s in range(3)]))
    assert (
        "Partial: 6 of 6 runs have not finished (6 not started)." in Page(html(document(said))).text
    )
    assert said.sentences[0].startswith("baseline (placement=pre) has no finished run yet.")


def test_variants_are_compared_at_their_own_best_point():
    """Post's smallest rate has the best figure, of the one run in three that did not diverge: that
    is not its best.
    """
    said = content(tuned())
    assert [arm.best.tuned for arm in said.variants] == [("optim.lr=0.003",), ("optim.lr=0.01",)]
    assert said.variants[1].verdict.difference.mean == pytest.approx(
        0.05 + 0.002 * (0 + 5 % 3 + 10 % 3 - 1 - 2) / 3
    )
    assert said.tuning[0].startswith(
        "Every variant was run at the same 3 points of optim.lr, and is compared at its own best"
    )
    assert said.tuning[1:] == [
        "The best optim.lr of placement=post, 0.01, is the largest that was tried: it may do better"
        " beyond."
    ]
    points = [row for row in Page(html(document(said))).rows if row[-1:] == ["best"]]
    assert [row[:2] for row in points] == [
        ["baseline", "optim.lr=0.003"],
        ["placement=post", "optim.lr=0.01"],
    ]


def test_higher_is_better_where_the_metric_says_so():
    results = tuned()
    shares = [
        replace(
            o, facts={**o.facts, "val/accuracy": 0.9 - o.facts["val/loss"] / 10} if o.facts else {}
        )
        for o in results.outcomes
    ]
    said = content(
        replace(results, study={**results.study, "metric": "val/accuracy"}, outcomes=shares)
    )
    assert [arm.best.tuned for arm in said.variants] == [("optim.lr=0.003",), ("optim.lr=0.01",)]
    assert "points" in said.sentences[1] and "higher is better" in markdown(document(said))


def test_main_effects_and_interactions_of_a_factorial():
    """Post alone does 0.1, with rms 0.15: 0.125 on average, and 0.05 together."""
    said = content(factorial())
    found = {effect.name: effect.difference.mean for effect, _, _ in said.effects}
    assert found == pytest.approx(
        {"placement=post": 0.125, "norm=rms": 0.045, "placement=post with norm=rms": 0.05}, abs=2e-3
    )
    page = Page(html(document(said))).text
    assert all(" ".join(sentence.split()) in page for *_, sentence in said.effects)
    assert content(plain_study()).effects == []


def test_runs_that_were_to_take_the_same_time_and_did_not_are_told_with_the_answer():
    known = [variant(), changed("placement", "post")]

    def said(what, share):
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
        "But the runs did not take the same time, as was asked for: beside the baseline's,"
        " placement=post +32 %. So this "
    )
    assert sentence in said("seconds", 1.32)
    assert "same time" not in said("seconds", 1.05) + said("flops", 1.32)


def test_what_was_matched():
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
        == "Parameters were brought to the baseline's by ffn.width: no variant misses it by more"
        " than 0.4 % (placement=p1; tolerance 1 %)."
    )
    assert (
        of(0.0) == "Parameters were equal to the baseline's, exactly, by ffn.width (tolerance 1 %)."
    )
    assert of(0.003, match="seconds", by="trainer.max_steps").endswith(
        "They were planned from the time of a step. In measured time the largest difference to the"
        " baseline is +4.9 % (placement=p0)."
    )
    assert (
        of(0.25, match="none")
        == "No budget was matched: variants cost what their parts cost. In parameters the largest"
        " difference to the baseline is +25 % (placement=p0)."
    )


def test_a_figure_that_is_not_finite_is_no_figure():
    known = [variant(), changed("placement", "post")]
    outcomes = [finished(i, s, 2.3 + i + 0.1 * s) for i in range(2) for s in range(3)]
    outcomes[3] = replace(outcomes[3], facts={**outcomes[3].facts, "val/loss": float("nan")})
    said = content(study(known, outcomes))
    assert (
        said.variants[1].runs.diverged == {0: 1000}
        and said.variants[1].verdict.difference.count == 2
    )


def test_a_metric_that_no_run_has_is_named_with_those_that_exist():
    with pytest.raises(ConfigError) as error:
        content(plain_study(metric="val/los_accuracy"))
    assert list(error.value.messages) == [
        "study.metric: no finished run has 'val/los_accuracy'. They have: val/loss, val/perplexity."
    ]


def test_runs_that_ended_early_are_marked():
    results = plain_study()
    first = replace(
        results.outcomes[0], facts={**results.outcomes[0].facts, "stopped": "after 3 hours"}
    )
    said = content(replace(results, outcomes=[first, *results.outcomes[1:]]))
    assert [(one.status, one.why) for one in said.troubles if one.name == "baseline"] == [
        ("ended early", "after 3 hours")
    ]


def test_other_data_or_kernels_are_said():
    results = plain_study()
    changed_ = replace(
        results.outcomes[1],
        facts={**results.outcomes[1].facts, "data_fingerprint": "x", "kernels": {"a": "flex"}},
    )
    said = content(
        replace(results, outcomes=[results.outcomes[0], changed_, *results.outcomes[2:]])
    )
    assert content(results).notes == []
    assert said.notes[0] == "Runs did not all see the same data: their fingerprints differ."
    assert "placement=post: flex, sdpa" in said.notes[1]


def test_a_study_of_many_variants_stays_legible():
    """30 of them: the baseline and the best seven have a look of their own, the sentences are
    folded.
    """
    known = [
        variant(),
        *(changed("placement", f"p{i}", flops=3e13 + 1e12 * i) for i in range(1, 30)),
    ]
    said = content(
        study(
            known,
            [
                finished(i, s, 2.3 + 0.01 * i + 0.001 * s * (i % 3))
                for i in range(30)
                for s in range(2)
            ],
        )
    )
    page = html(document(said))
    assert "A sentence on each of the 30 variants" in Page(page).text
    legend = re.findall(
        r">(placement=p\d+|baseline|22 others)</text>",
        page[page.index('id="curve-val-loss-figure') :],
    )
    assert legend[:9] == ["baseline", *(f"placement=p{i}" for i in range(1, 8)), "22 others"]


def test_the_front_by_hand():
    points = [(3, 1.0), (1, 2.0), (2, 2.5), (2, 1.5), (4, 1.0)]
    assert front(points, higher_is_better=False) == [(1, 2.0), (2, 1.5), (3, 1.0)]
    assert front(points, higher_is_better=True) == [(1, 2.0), (2, 2.5)]
