"""A report is made from the files of runs, and written next to the plan."""

import pytest
from studies import partial, placements, write

from tasks.study.report import report
from xformer_kit.registry import ConfigError
from xformer_kit.study.report import csv_files
from xformer_kit.study.report.content import content


def test_a_directory_becomes_a_report(tmp_path, capsys):
    """Read from the files of real runs, with the same figures as from memory; twice gives the same
    files.
    """
    results = partial()
    folder = write(results, tmp_path)
    assert [o.status for o in report(folder).outcomes] == [
        "stopped" if o.status == "running" else o.status
        for o in results.outcomes  # nobody holds it
    ]
    names = {"report.html", "report.md", "runs.csv", "variants.csv"}
    assert {path.name for path in folder.iterdir()} == {"plan.json", *names}
    first = {name: (folder / name).read_bytes() for name in names}
    expected = content(results)
    assert first["variants.csv"].decode().splitlines() == csv_files.variants(expected).splitlines()
    assert (
        "python train.py study=norm_placement seed=0" in first["report.md"].decode().splitlines()
    )  # as it is typed
    report(folder)
    assert {name: (folder / name).read_bytes() for name in names} == first
    shown = " ".join(capsys.readouterr().out.split())
    assert results.study["question"] in shown and " ".join(expected.sentence.split()) in shown
    assert all(" ".join(sentence.split()) in shown for sentence in expected.sentences)


def test_without_the_extra_the_runs_are_kept(tmp_path, capsys, monkeypatch):
    folder = write(placements(2), tmp_path)
    monkeypatch.setattr(
        "tasks.study.report.find_spec", lambda name: None if name == "scipy" else name
    )
    report(folder)
    assert (
        capsys.readouterr().err
        == 'A report needs scipy: pip install "xformer_kit[study]". The runs are kept; start the'
        " study again for its report.\n"
    )
    assert [path.name for path in folder.iterdir()] == ["plan.json"]


def test_a_directory_without_a_plan_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"is no study; it has no plan.json\."):
        report(tmp_path)
