"""Reports in HTML, Markdown and CSV: the same figures in all forms, and text that is no markup."""

import re

import numpy as np
import pytest
from scipy import stats
from studies import (
    KINDS,
    changed,
    finished,
    placements,
    plain_study,
    report_of,
    study,
    variant,
)

from tests.study.report_pages import Page, assert_rounded, markdown_rows, rows_of
from xformer_kit.study.report import csv_files
from xformer_kit.study.report.content import content
from xformer_kit.study.report.document import paper_url
from xformer_kit.study.report.html import html, unbroken
from xformer_kit.study.report.markdown import fenced, markdown, plain
from xformer_kit.study.report.plots import pareto_front
from xformer_kit.study.report.sections import document
from xformer_kit.study.report.tables import OUTCOMES
from xformer_kit.study.results import STATUS_NAMES


@pytest.fixture(scope="module", params=KINDS)
def made(request):
    """(results, content, page, Markdown) of a study of each kind."""
    results = KINDS[request.param]()
    report = content(results)
    return results, report, Page(html(document(report))), markdown(document(report))


@pytest.mark.extended
def test_every_variant_and_every_unfinished_run_is_in_all_forms(made):
    results, report, page, text = made
    runs, variants = rows_of(csv_files.runs(results)), rows_of(csv_files.variants(report))
    assert len(runs) == len(results.outcomes) and len(variants) == len(report.variants)
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
        assert row[2] == STATUS_NAMES.get(one.status, one.status)
        assert not one.why or row[4] == one.why
        assert one.step is None or row[3] == str(one.step)
        (row,) = [row for row in runs if row["key"] == one.key]
        assert (row["status"], row["step"], row["why"]) == (
            one.status,
            str(one.step or ""),
            one.why,
        )


def test_the_forms_have_the_same_values(made):
    """HTML and Markdown have the same cells; these are the values of variants.csv, rounded."""
    _, report, page, text = made
    assert page.rows == markdown_rows(text)
    rounded = {}
    for row in rows_of(csv_files.variants(report)):
        name = " ".join(filter(None, (row["variant"], row["tuned"])))
        rounded[name] = row
    means = [
        row
        for row in page.rows
        if len(row) == 5 and row[4].endswith(f"of {rounded.get(row[0], {}).get('runs')}")
    ]
    assert len(means) == len(report.variants)
    for name, mean, span, *_ in means:
        assert_rounded(mean, rounded[name]["mean"])
        for shown, column in zip(span.split(" to "), ("low", "high"), strict=False):
            assert_rounded(shown, rounded[name][column])
    differences = [row for row in page.rows if row[-1] in list(OUTCOMES.values())[1:]]
    assert len(differences) == len(report.variants) - 1
    for name, mean, span, effect, *_ in differences:
        assert_rounded(mean, rounded[name]["difference"])
        assert_rounded(effect, rounded[name]["effect_size"])
        for shown, column in zip(
            span.split(" to "), ("difference_low", "difference_high"), strict=False
        ):
            assert_rounded(shown, rounded[name][column])
    for sentence in (report.sentence, *report.sentences):
        assert " ".join(sentence.split()) in page.text and plain(sentence) in text


def test_a_page_links_only_to_itself(made):
    """Links are those of the contents and of figures."""
    *_, page, _ = made
    assert all(link.startswith("#") for link in page.links)
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links} <= set(page.ids)


def test_the_contents_follow_the_answer_and_link_every_section():
    report = report_of(plain_study())
    page = html(report)
    (contents,) = re.findall(r"<nav.*?</nav>", page, re.DOTALL)
    links = re.findall(r'<a href="#([^"]+)">([^<]+)</a>', contents)
    assert [title for _, title in links] == [section.title for section in report.sections]
    places = [page.index(text) for text in ('class="answer"', contents, 'class="verdicts"')]
    assert places == sorted(places)
    titles = [re.escape(title) for _, title in links]
    heading = rf'<section id="([^"]+)">\s*<h2>({"|".join(titles)})</h2>'
    # A link to a part of a closed <details> opens it; a link to <details> itself does not.
    folded = rf'<details><summary>({"|".join(titles)})</summary>\s*<div id="([^"]+)">'
    found = {(name, title) for name, title in re.findall(heading, page)}
    found |= {(name, title) for title, name in re.findall(folded, page)}
    assert found == set(links) and any(section.folded for section in report.sections)


def test_intervals_and_p_values_are_not_broken_over_lines():
    text = "worse by 5 % (95 % CI 4 to 6, 5 seeds, Holm-corrected p = 0.01, p < 0.0001): a p of 3"
    assert unbroken(text) == text.replace(" %", "\xa0%").replace("% CI", "%\xa0CI").replace(
        "p = 0", "p\xa0=\xa00"
    ).replace("p < 0", "p\xa0<\xa00")


def test_a_claim_links_its_paper():
    expect = {"variant": "placement=post", "is": "worse", "than": "baseline"}
    report = content(
        plain_study(claim={"paper": "Xiong et al., 2020, arXiv:2002.04745", "expect": expect})
    )
    assert report.claim.outcome == "held"
    page = Page(html(document(report)))
    assert [link for link in page.links if not link.startswith("#")] == [
        "https://arxiv.org/abs/2002.04745"
    ]
    assert "The claim held. placement=post is worse than baseline" in page.text
    assert "its p-value is not corrected for the other variants" in page.text
    assert (
        "[Xiong et al., 2020, arXiv:2002.04745](https://arxiv.org/abs/2002.04745)): The claim held."
        in markdown(document(report))
    )


def test_addresses_of_papers():
    assert (
        paper_url("Press et al., 2022, arXiv:2108.12409, section 3")
        == "https://arxiv.org/abs/2108.12409"
    )
    assert paper_url("see https://example.org/a_b.pdf.") == "https://example.org/a_b.pdf"
    assert paper_url("javascript:alert(1)") is None


def test_the_cost_of_a_variant_is_its_largest_memory_and_the_mean_of_the_rest():
    facts = [(5, 1.0), (9, 2.0), (1, 6.0)]
    runs = [
        finished(index, seed, 2.3, peak_memory_bytes=memory, seconds=seconds)
        for index in range(2)
        for seed, (memory, seconds) in enumerate(facts)
    ]
    for one in content(study([variant(), changed("placement", "post")], runs)).variants:
        assert (one.cost["peak_memory_bytes"], one.cost["seconds"]) == (9, 3)


def test_the_legend_of_a_picture_names_each_variant():
    known = [variant(), changed("placement", "post", flops=2e13)]
    runs = [finished(i, seed, 2.3 + 0.1 * i) for i in range(2) for seed in range(2)]
    pictures = {one.name: one for one in report_of(study(known, runs)).figures}
    for name in ("cost flops", "losses"):
        with pictures[name].drawn() as figure:
            legends = [*figure.legends, *filter(None, (a.get_legend() for a in figure.axes))]
            named = {text.get_text() for legend in legends for text in legend.get_texts()}
        assert named == {"baseline", "placement=post"}


def test_secondary_metrics_have_intervals_and_no_verdict():
    """They change neither the answer nor any p."""
    names = ["val/perplexity", "peak_memory_bytes"]
    results, without_names = placements(also=names), content(placements())
    report = content(results)
    assert (report.sentence, report.sentences) == (without_names.sentence, without_names.sentences)
    assert [one.verdict for one in report.variants] == [
        one.verdict for one in without_names.variants
    ]
    page, text = Page(html(document(report))), markdown(document(report))
    assert (
        page.rows == markdown_rows(text)
        and "val/perplexity (" not in page.text
        and "Secondary metrics" in page.text
    )
    rows = [row for row in page.rows if len(row) == 6 and row[0] == "placement=post"]
    base, mine = ([one.facts["val/perplexity"] for one in results.outcomes_of(i)] for i in (0, 1))
    test = stats.ttest_rel(mine, base)
    (row,) = (
        row for row in rows_of(csv_files.variants(report)) if row["variant"] == "placement=post"
    )
    assert float(row["also.val/perplexity.difference"]) == pytest.approx(
        np.mean(mine) - np.mean(base)
    )
    for name, bound in zip(("low", "high"), test.confidence_interval(), strict=True):
        assert float(row[f"also.val/perplexity.difference_{name}"]) == pytest.approx(bound)
    assert_rounded(rows[0][1], row["also.val/perplexity.mean"])
    assert_rounded(rows[0][3], row["also.val/perplexity.difference"])
    assert rows[1][1:4] == ["587000000", "-", "+7000000"] and "also.val/perplexity.p" not in row


def test_a_question_is_text_and_no_markup():
    question = 'Is <b>post</b> & "pre" | `norm` *worse*? $x_1$ <script>alert(1)</script>'
    known = [variant(), changed("placement", "<i>a</i> & $b$")]
    outcomes = [finished(i, s, 2.3 + i + 0.1 * s * (1 + i)) for i in range(2) for s in range(2)]
    report = content(study(known, outcomes, question=question))
    page, text = Page(html(document(report))), markdown(document(report))
    assert question in page.text and "placement=<i>a</i> & $b$" in page.text
    assert text.startswith(
        r'# Is &lt;b&gt;post&lt;/b&gt; &amp; "pre" \| \`norm\` \*worse\*? $x_1$ &lt;script&gt;'
    )
    assert page.rows == markdown_rows(text)


def test_a_sample_with_a_code_fence_is_in_a_longer_one():
    assert fenced("a\n```\nb") == "````text\na\n```\nb\n````"
    text = markdown(report_of(plain_study()))
    assert "```text\nThe cat of variant 1 sat on\n  the <mat> of seed 1.\n```" in text


@pytest.mark.extended
def test_many_variants_are_folded_and_share_a_legend_entry():
    """30 of them: only the baseline and the best seven have their own colour, the sentences are
    folded.
    """
    known = [
        variant(),
        *(changed("placement", f"p{i}", flops=3e13 + 1e12 * i) for i in range(1, 30)),
    ]
    report = content(
        study(
            known,
            [
                finished(i, s, 2.3 + 0.01 * i + 0.001 * s * (i % 3))
                for i in range(30)
                for s in range(2)
            ],
        )
    )
    page = html(document(report))
    assert "Results of all 30 variants" in Page(page).text
    legend = re.findall(
        r">(placement=p\d+|baseline|22 others)</text>",
        page[page.index('id="losses-narrow-figure') :],
    )
    assert legend[:9] == ["baseline", *(f"placement=p{i}" for i in range(1, 8)), "22 others"]


def test_pareto_front():
    points = [(3, 1.0), (1, 2.0), (2, 2.5), (2, 1.5), (4, 1.0)]
    assert pareto_front(points, higher_is_better=False) == [(1, 2.0), (2, 1.5), (3, 1.0)]
    assert pareto_front(points, higher_is_better=True) == [(1, 2.0), (2, 2.5)]


def test_starting_weights_are_named_with_what_each_variant_copies():
    entry = {"source": "outputs/base", "checkpoint": "best.ckpt", "step": 800, "copied": 38}
    entry |= {"sha256": "ab" * 32, "missing": [], "unused": [], "reshaped": [], "resized": {}}
    names = [f"decoder.{i}.attn.k.weight" for i in range(4)]
    heads = dict.fromkeys(names, "8 key heads are averaged into 2")
    more = {"missing": ["decoder.0.attn.q_norm.scale"], "resized": heads}
    known = [variant(), changed("attn.kv_heads", "2")]
    outcomes = [
        finished(at, seed, 2.0 + at + 0.01 * seed, init_from=entry | (more if at else {}))
        for at in (0, 1)
        for seed in (0, 1)
    ]
    text = markdown(document(content(study(known, outcomes))))
    assert (
        "All variants start from outputs/base (best.ckpt, step 800, sha256 abababababab)." in text
    )
    rows = {tuple(row) for row in markdown_rows(text)}
    assert ("baseline", "38", "-") in rows
    what = "new, with initial values: decoder.0.attn.q_norm.scale; 8 key heads are averaged into 2:"
    what += " decoder.*.attn.k.weight (4)"
    assert ("attn.kv_heads=2", "38", what) in rows
    outcomes[2:] = [finished(1, seed, 3.0, init_from=entry | {"source": "x"}) for seed in (0, 1)]
    text = markdown(document(content(study(known, outcomes))))
    assert "baseline starts from outputs/base (" in text
    assert "attn.kv\\_heads=2 starts from x (" in text or "attn.kv_heads=2 starts from x (" in text
    assert "Starting weights" not in markdown(document(content(plain_study())))
