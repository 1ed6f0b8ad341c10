"""The note on runs whose loss is near that of the frequencies of tokens."""

import pytest
from studies import changed, finished, report_of, study, variant

from xformer_kit.study.report.html import html
from xformer_kit.study.report.markdown import markdown

UNIGRAM = 4.0
START = "These runs are hardly trained: their validation loss "
END = " that of a model that has only the frequencies of tokens (4.00)."


def note(base, other, unigram=UNIGRAM):
    known = [variant(), changed("placement", "post")]
    facts = {} if unigram is None else {"unigram_loss": unigram}
    runs = [finished(i, s, x, **facts) for i, x in enumerate((base, other)) for s in range(2)]
    return report_of(study(known, runs)).hardly_trained


@pytest.mark.parametrize(
    ("base", "other", "text"),
    [
        (3.9, 4.1, "(3.90 to 4.10) is within 5 % of"),
        (3.81, 3.81, "(3.81) is within 5 % of"),
        (4.5, 5.0, "(4.50 to 5.00) is above"),
        (3.9, 5.0, "(3.90 to 5.00) is at most 5 % below"),
    ],
)
def test_runs_near_the_frequencies_of_tokens_are_named(base, other, text):
    assert note(base, other) == START + text + END


@pytest.mark.parametrize(
    ("base", "other", "unigram"), [(3.7, 3.7, 4.0), (3.9, 3.0, 4.0), (3.9, 3.9, None)]
)
def test_other_runs_have_no_note(base, other, unigram):
    """One variant that has been trained is enough."""
    assert note(base, other, unigram) == ""


@pytest.mark.extended
def test_the_note_is_first_after_the_title():
    known = [variant(), changed("placement", "post")]
    runs = [finished(i, s, 3.9 + 0.1 * i, unigram_loss=4.0) for i in range(2) for s in range(2)]
    report = report_of(study(known, runs))
    page = html(report)
    assert page.index("</h1>") < page.index(START) < page.index(report.answer)
    assert markdown(report).splitlines()[2].startswith(f"**{START}")


def test_a_claim_says_that_its_runs_are_hardly_trained():
    known = [variant(), changed("placement", "post")]
    runs = [finished(i, s, 3.9 + 0.1 * i, unigram_loss=4.0) for i in range(2) for s in range(2)]
    claim = {"paper": "one", "expect": {"variant": "placement=post", "is": "worse"}}
    assert report_of(study(known, runs, claim=claim)).claim.endswith(
        "It was tested on runs that are hardly trained."
    )
