"""`xformer judge`: runs of any trainer from a CSV file, with the statistics of a study."""

import math

import numpy as np
import pytest
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from tasks.cli import main
from xformer_kit.registry import ConfigError
from xformer_kit.study.report.content import content
from xformer_kit.study.report.document import Table
from xformer_kit.study.report.markdown import markdown
from xformer_kit.study.report.sections import document
from xformer_kit.study.run_table import read_run_table
from xformer_kit.study.statistics import difference, paired_difference, unpaired_difference

BASE = {0: 3.05, 1: 2.95, 2: 2.94, 3: 2.98}
OTHER = {0: 3.00, 1: 2.91, 2: 2.91, 3: 2.93}


@pytest.fixture
def table(tmp_path):
    """table(text) writes it to runs.csv; returns the path."""

    def write(text: str):
        (path := tmp_path / "runs.csv").write_text(text)
        return path

    return write


def lines(**variants) -> str:
    rows = [
        f"{name},{seed},{value}" for name, runs in variants.items() for seed, value in runs.items()
    ]
    return "\n".join(["variant,seed,val_loss", *rows])


def test_the_verdict_is_that_of_a_study(table):
    found = content(read_run_table(table(lines(adamw=BASE, muon=OTHER))))
    (verdict,) = (one.verdict for one in found.variants if one.verdict)
    assert verdict.difference == paired_difference(BASE, OTHER)
    assert found.sentence == "Compared with adamw, muon is better by 0.042 nats."
    swapped = content(read_run_table(table(lines(adamw=BASE, muon=OTHER)), baseline="muon"))
    assert swapped.sentence == "Compared with muon, adamw is worse by 0.042 nats."


def test_runs_without_seeds_are_not_paired(table):
    cells = (line.split(",") for line in lines(a=BASE, b=OTHER).splitlines())
    text = "\n".join(f"{name},{value}" for name, _, value in cells)
    found = content(read_run_table(table(text)))
    d = found.variants[1].verdict.difference
    assert d.method == "welch" and d == unpaired_difference([*BASE.values()], [*OTHER.values()])
    assert "4 and 4 runs, which are not paired by seed" in found.sentences[1]


@pytest.mark.parametrize("sizes", [(2, 2), (3, 7), (20, 4)])
def test_unpaired_runs_are_compared_as_statsmodels_does(sizes):
    draw = np.random.default_rng(sum(sizes))
    before, after = draw.normal(0, 1, sizes[0]), draw.normal(1, 3, sizes[1])
    d = unpaired_difference(before, after)
    test = CompareMeans(DescrStatsW(after), DescrStatsW(before))
    assert d.p == pytest.approx(test.ttest_ind(usevar="unequal")[1])
    assert (d.low, d.high) == pytest.approx(test.tconfint_diff(usevar="unequal"))
    assert d.mean == pytest.approx(after.mean() - before.mean()) and d.runs == sizes


def test_common_seeds_are_preferred_and_one_is_not_enough():
    assert difference(BASE, OTHER).method == "t"
    assert difference({0: 1.0, 1: 2.0}, {1: 2.5, 2: 3.0}).method == "welch"
    assert difference({0: 1.0}, {0: 2.0, 1: 3.0}).method == "one seed"
    assert difference({0: 1.0}, {}).method == "no seed"
    assert difference({0: 1.0}, {1: 3.0}).method == "constant"
    assert difference({0: 1.0, 1: 1.0}, {2: 3.0, 3: 3.0}).method == "constant"


def test_a_run_without_a_finite_value_has_failed(table):
    runs = BASE | {4: math.nan}
    found = content(read_run_table(table(lines(a=BASE, b=OTHER, c=runs, d={**OTHER, 5: ""}))))
    assert "1 of 5 runs failed (seed 4)" in found.sentences[2]
    huge = content(read_run_table(table(lines(a=BASE, b={0: 1e300, 1: 1e308}))))
    assert "2 of 2 runs failed" in huge.sentences[1]
    assert [run.why for run in found.irregular_runs] == [
        "its val_loss is nan",
        "its val_loss is empty",
    ]


def test_one_run_of_each_has_a_difference_and_no_test(table):
    found = content(read_run_table(table("variant,loss\na,1\nb,2")))
    assert found.sentence == "Compared with a, not tested: b +1.0 nats."
    assert found.sentences[1] == (
        "The means of b and a differ by +1.0 nats (1 and 1 run, which are not paired by seed); no"
        " test is possible: run at least 5 seeds."
    )


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_tables_of_other_programs_are_read(table, separator):
    text = "\ufeffVariant , Seed,val_loss,note\r\na, 0.0 ,3,x\r\n\r\nb,0, 2.5 ,y\r\n"
    results = read_run_table(table(text.replace(",", separator)))
    assert [(one.seed, one.facts) for one in results.outcomes] == [
        (0, {"val_loss": 3.0}),
        (0, {"val_loss": 2.5}),
    ]


def test_a_headline_lists_some_of_many_variants(table):
    many = {f"v{number}": {seed: x + number for seed, x in BASE.items()} for number in range(1)}
    many |= {f"w{number}": dict(BASE) for number in range(30)}
    found = content(read_run_table(table(lines(a=BASE, **many))))
    assert "w8, w9" not in found.sentence and "others: no significant difference" in found.sentence


def test_a_report_replaces_no_files(table, capsys):
    path = table(lines(a=BASE, b=OTHER))
    assert main(["judge", str(path), "--report", str(path.parent)]) == 2
    assert "--report: must be a new or empty directory" in capsys.readouterr().err
    assert path.read_text() == lines(a=BASE, b=OTHER)
    assert main(["judge", str(path), "--report", str(path.parent / "new" / "report")]) == 0


def test_a_report_has_no_empty_tables(table):
    page = markdown(document(content(read_run_table(table(lines(a=BASE, b=OTHER))))))
    assert "### Means" in page and "Overrides" not in page and "## Cost" not in page
    assert "Reproduction" not in page
    assert Table("", ["a", "b"], [["x", "-"]]).empty and not Table("", ["a"], [["x"]]).empty


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2", {}, r"must have a column variant; got a, b"),
        ("variant,seed,loss\n", {}, r"has no run"),
        ("", {}, r"must have a column variant; got none"),
        ("variant,seed,loss\na,0,1", {"margin": -1.0}, r"--margin: must be above 0; got -1"),
        ("variant,seed,loss\na,0", {}, r"runs.csv:2: must have 3 cells"),
        ("variant,seed,loss\na,x,1", {}, r"runs.csv:2: seed must be an integer; got x"),
        ("variant,seed,loss\na,0,high", {}, r"runs.csv:2: loss must be numbers; got high"),
        ("variant,seed,loss\na,0,1\na,0,2", {}, r"runs.csv:3: repeats seed 0 of a, which line 2"),
        ("variant,loss,loss\na,0,1", {}, r"names a column twice; got loss"),
        ("variant,seed\na,0", {}, r"Add a column, such as val_loss"),
        ("variant,seed,loss,bleu\na,0,1,2", {}, r"--metric: must be named.* Try --metric loss"),
        ("variant,seed,loss\na,0,1", {"measured": "los"}, r"--metric: .* Did you mean 'loss'"),
        ("variant,seed,loss\na,0,1", {"baseline": "b"}, r"--baseline: no variant of .* 'b'"),
        ("variant,seed,score\na,0,1", {}, r"--better: must be lower or higher"),
    ],
)
def test_a_table_that_cannot_be_judged_is_one_sentence(table, text, options, message):
    with pytest.raises(ConfigError, match=message):
        read_run_table(table(text), **options)
