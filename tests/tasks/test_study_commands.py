"""xformer status, report and compare, on a study of four tiny runs."""

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from tasks.cli.comparison import letter
from tasks.process.exit_codes import NONFINITE
from tasks.study import state
from tests.tasks.command_lines import fault, output
from xformer_kit.config import config_yaml, preflight, read_config
from xformer_kit.study.command import command
from xformer_kit.study.statistics import paired_difference


@pytest.fixture
def home(study_home, tmp_path, monkeypatch) -> Path:
    """A copy of that directory, to be changed; the current directory."""
    copy = tmp_path / "home"
    shutil.copytree(study_home, copy)
    monkeypatch.chdir(copy)
    monkeypatch.setenv("COLUMNS", "200")
    return copy


@pytest.fixture
def pool(home) -> dict[tuple[str, int], Path]:
    """(variant, seed) -> directory of the run."""
    plan = json.loads((home / "outputs/studies/norm_placement/plan.json").read_text())
    names = [variant["label"] for variant in plan["variants"]]
    return {
        (names[run["variant"]], run["seed"]): Path("outputs/runs", run["key"])
        for run in plan["runs"]
    }


def data(capsys, *words):
    code, out, _ = output(capsys, *words, "--json")
    assert code == 0
    return json.loads(out)


@pytest.mark.extended
def test_status_of_a_finished_study(capsys, home):
    found = data(capsys, "status", "norm_placement")
    assert found["counts"]["finished"] == 4
    assert (found["go_on"], found["retry"]) == (None, None)
    assert [(v["name"], v["finished"]) for v in found["variants"]] == [
        ("baseline", 2),
        ("placement=post", 2),
    ]
    assert found == data(capsys, "status", "outputs/studies/norm_placement")
    assert "4 of 4 runs finished" in output(capsys, "status", "norm_placement")[1]


@pytest.mark.extended
def test_status_of_unfinished_runs(capsys, home, pool):
    stopped, ran, lost, burst = pool.values()
    for run in pool.values():
        (run / "summary.json").unlink()
    (lost / "ended.json").write_text('{"code": 1, "text": "Out of luck.\\nmore", "step": null}')
    (burst / "ended.json").write_text(f'{{"code": {NONFINITE}, "text": "Not finite.", "step": 3}}')
    with state.claim(ran) as locked:
        assert locked
        found = data(capsys, "status", "norm_placement")
        _, page, _ = output(capsys, "status", "norm_placement")
    assert found["counts"] == {
        "finished": 0,
        "diverged": 1,
        "pruned": 0,
        "failed": 1,
        "running": 1,
        "stopped": 1,
        "open": 0,
    }
    for line in (
        "baseline seed 0: interrupted at step 5 of 5",
        "placement=post seed 0: running at step 5 of 5",
        "baseline seed 1: failed: Out of luck.",
        "placement=post seed 1: diverged at step 3: Not finite.",
    ):
        assert f"\n{line}\n" in page
    shutil.rmtree(stopped)
    assert data(capsys, "status", "norm_placement")["counts"]["open"] == 1


@pytest.mark.extended
def test_runs_are_listed_by_time_with_their_place_in_a_study(capsys, home, pool):
    *_, stopped, _ = pool.values()
    for time, run in enumerate(reversed(pool.values()), 1):
        os.utime(run / "config.yaml", (time, time))
    (stopped / "summary.json").unlink()
    found = data(capsys, "runs")
    assert [row["run"] for row in found] == [str(run) for run in reversed(pool.values())]
    assert [row["study"] for row in found] == [
        f"norm_placement: {variant}, seed {seed}" for variant, seed in reversed(pool.keys())
    ]
    steps, states = [row["step"] for row in found], [row["state"] for row in found]
    assert (steps, states) == ([5] * 4, ["finished", "stopped", "finished", "finished"])
    assert all((row["loss"] is None) == (row["state"] == "stopped") for row in found)
    _, page, _ = output(capsys, "runs")
    assert f"{stopped}  language_modeling " in page and " interrupted  norm_placement: " in page
    shutil.rmtree("outputs")
    assert output(capsys, "runs")[1] == "There is no run below outputs: xformer train begins one.\n"


def test_the_proposed_command_continues_the_same_study(capsys, home, pool):
    (pool["baseline", 0] / "summary.json").unlink()
    typed = shlex.split(data(capsys, "status", "norm_placement")["go_on"])
    assert typed[:2] == ["xformer", "train"]
    assert "model.dim=32" in typed
    again = preflight(typed[2:])
    given = json.loads((home / "outputs/studies/norm_placement/plan.json").read_text())["command"]
    assert again.argv == [word for word in given if not word.startswith("hydra.sweep.dir=")]
    os.chdir("outputs")
    assert data(capsys, "status", "studies/norm_placement")["go_on"].startswith(
        "cd .. && xformer train study="
    )


def test_the_command_of_overrides(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        command(["study=a", "++b.c=1", "++d={e: [1, 2]}", "~f"])
        == "xformer train study=a b.c=1 'd={e: [1, 2]}' '~f'"
    )
    assert (
        command(["++study.retry=false", "x=1", "hydra.sweep.dir=outputs/runs"], "study.retry=true")
        == "xformer train x=1 study.retry=true"
    )


def test_a_report_is_written_again_and_its_path_is_printed(capsys, home, pool):
    folder = Path("outputs/studies/norm_placement")
    failed = pool["baseline", 0]
    (failed / "summary.json").unlink()
    (failed / "ended.json").write_text('{"code": 1, "text": "Out of luck.\\nmore", "step": null}')
    code, page, _ = output(capsys, "report", "norm_placement")
    assert code == 0 and "Partial: 1 of 4 runs have not finished (1 failed)." in page
    assert f"Report  {folder}/report.html\n        {folder}/report.md\n" in page
    (folder / "report.md").unlink()
    found = data(capsys, "report", "norm_placement")
    assert (found["finished"], found["runs"]) == (3, 4)
    assert found["files"] == [
        f"{folder}/{name}" for name in ("report.html", "report.md", "runs.csv", "variants.csv")
    ]
    assert (folder / "report.md").is_file()


def test_a_report_that_cannot_be_written_is_no_success(capsys, home, monkeypatch):
    monkeypatch.setattr("tasks.study.report.find_spec", lambda name: None)
    code, _, err = output(capsys, "report", "norm_placement")
    assert (
        code,
        err.startswith("A report needs scipy and matplotlib and jinja2: pip install"),
    ) == (1, True)
    monkeypatch.setattr("tasks.cli.comparison.find_spec", lambda name: None)
    assert fault(capsys, "compare", "a", "b").startswith(
        "compare: needs the package scipy for its intervals;"
    )


@pytest.mark.parametrize("word", ["status", "report"])
def test_unknown_studies_are_refused(capsys, home, word):
    answer = fault(capsys, word, "norm_plcement")
    assert (
        answer == "norm_plcement: is no study, a directory with plan.json. Did you mean"
        " 'norm_placement'? In outputs/studies: norm_placement."
    )
    assert fault(capsys, word, "outputs").endswith("In outputs/studies: norm_placement.")
    (home / "outputs/studies/norm_placement/plan.json").write_text("{")
    assert "plan.json: cannot be read as JSON: " in fault(capsys, word, "norm_placement")
    shutil.rmtree("outputs/studies")
    assert fault(capsys, word, "x").endswith("In outputs/studies: none.")


def test_seeds_are_taken_together_and_compared_pair_by_pair(capsys, pool):
    found = data(capsys, "compare", *pool.values())
    pre, post = found["groups"]
    assert found["differing"] == ["placement.name"]
    assert (pre["name"], post["name"]) == ("placement=pre", "placement=post")
    summaries = {key: json.loads((run / "summary.json").read_text()) for key, run in pool.items()}
    losses = [
        {seed: summaries[name, seed]["val/loss"] for seed in (0, 1)}
        for name in ("baseline", "placement=post")
    ]
    assert pre["values"]["val/loss"] == {str(seed): loss for seed, loss in losses[0].items()}
    assert pre["intervals"]["val/loss"]["mean"] == pytest.approx(sum(losses[0].values()) / 2)
    by_hand = paired_difference(*losses)
    (verdict,) = found["verdicts"]
    assert (verdict["difference"]["mean"], verdict["difference"]["p"]) == (by_hand.mean, by_hand.p)
    assert verdict["sentence"] in output(capsys, "compare", *pool.values())[1]
    swapped = data(capsys, "compare", *reversed(pool.values()))
    assert swapped["verdicts"][0]["difference"]["mean"] == pytest.approx(-by_hand.mean)


def test_at_most_one_common_seed_is_not_tested(capsys, pool):
    _, page, _ = output(
        capsys,
        "compare",
        pool["baseline", 0],
        pool["placement=post", 0],
        "--metric",
        "val/perplexity",
    )
    assert "at the only common seed; no test is possible" in page
    assert "val/loss" not in page
    _, page, _ = output(capsys, "compare", pool["baseline", 0], pool["placement=post", 1])
    assert "which are not paired by seed); no test is possible" in page
    _, page, _ = output(capsys, "compare", pool["baseline", 0], pool["baseline", 1])
    assert "±" in page
    assert " B" not in page


def test_a_duplicate_run_begins_a_new_group_with_identical_values(capsys, pool):
    for seed in (0, 1):
        shutil.copytree(pool["baseline", seed], f"again{seed}")
    found = data(capsys, "compare", pool["baseline", 0], pool["baseline", 1], "again0", "again1")
    assert [group["name"] for group in found["groups"]] == ["A", "B"]
    assert found["verdicts"][0]["sentence"].startswith(
        "B and A have identical values at all 2 seeds"
    )


def test_a_diverged_run_is_reported_and_not_averaged(capsys, pool):
    (pool["placement=post", 1] / "summary.json").unlink()
    (pool["placement=post", 1] / "ended.json").write_text(
        f'{{"code": {NONFINITE}, "text": "x", "step": 3}}'
    )
    found = data(capsys, "compare", *pool.values())
    assert found["groups"][1]["diverged"] == {"1": 3}
    assert list(found["groups"][1]["values"]["val/loss"]) == ["0"]
    assert (
        "1 of 2 runs of placement=post diverged (seed 1 at step 3)"
        in found["verdicts"][0]["sentence"]
    )


def test_notes_on_other_data_and_fewer_steps(capsys, pool):
    path = pool["placement=post", 1] / "summary.json"
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"data_fingerprint": "0", "steps": 4})
    )
    assert data(capsys, "compare", *pool.values())["notes"] == [
        "Not all of these runs have the same data, number of steps: what depends on it does not"
        " compare."
    ]


def test_runs_of_other_data_are_no_seeds_of_one_another(capsys, pool):
    """Data with another fingerprint make another group, which is named by their path."""
    other = pool["baseline", 1]
    path = other / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data_fingerprint": "0"}))
    config = read_config(other)
    (other / "config.yaml").write_text(
        config_yaml(config | {"data": config["data"] | {"path": "elsewhere.txt"}})
    )
    found = data(capsys, "compare", pool["baseline", 0], other)
    assert found["differing"] == ["data.path"]
    assert [len(group["runs"]) for group in found["groups"]] == [1, 1]
    assert found["groups"][1]["name"] == "data.path=elsewhere.txt"


def test_impossible_comparisons_are_refused(capsys, pool):
    one, other, third, *_ = pool.values()
    assert fault(capsys, "compare", one).startswith(
        "compare: takes two runs or more; got outputs/runs/"
    )
    assert fault(capsys, "compare", one, "outputs").startswith(
        "outputs: is no run; it has no config.yaml."
    )
    answer = fault(capsys, "compare", one, other, "--metric", "val/los")
    assert (
        f"--metric: {one} has no metric 'val/los'. Did you mean 'val/loss'? All of these runs have:"
        " val/loss," in answer
    )
    config = read_config(other)
    (other / "config.yaml").write_text(config_yaml(config | {"task": {"name": "seq2seq"}}))
    answer = fault(capsys, "compare", one, other)
    assert answer.startswith(
        f"compare: runs must be of one task; got language_modeling ({one}), seq2seq ({other})."
    )
    (other / "config.yaml").write_text(config_yaml(config))
    (other / "summary.json").unlink()
    unfinished = f"{other}: is not finished; it has no summary.json."
    fix = "Name a finished run in its place."
    assert fault(capsys, "compare", one, other) == f"{unfinished} {fix}"
    answer = fault(capsys, "compare", other, one, third)
    assert answer == f"{unfinished} {fix}"
    page = output(capsys, "compare", one, other, third)[1]
    assert f"{other} is not finished; it has no summary.json, and is left out." in page.replace(
        "\n", " "
    )


def test_an_unfinished_run_of_a_directory_is_left_out_also_the_first_and_of_another_task(
    capsys, home, pool
):
    first, *others = sorted(pool.values())
    config = read_config(first)
    (first / "config.yaml").write_text(config_yaml(config | {"task": {"name": "seq2seq"}}))
    (first / "summary.json").unlink()
    found, expected = data(capsys, "compare", "outputs/runs"), data(capsys, "compare", *others)
    assert found.pop("notes") == [
        f"{first} is not finished; it has no summary.json, and is left out.",
        *expected.pop("notes"),
    ]
    assert found == expected


def test_a_directory_of_runs_stands_for_its_runs(capsys, home, pool):
    runs = sorted(pool.values())
    assert data(capsys, "compare", "outputs/runs") == data(capsys, "compare", *runs)
    assert "peak memory (CPU: of the process)" in output(capsys, "compare", "outputs/runs")[1]
    code, out, _ = output(capsys, "plot", "curves", "outputs/runs")
    assert (code, out) == (0, "curves.png\n")
    assert fault(capsys, "evaluate", "outputs/runs") == (
        f"outputs/runs: is no run; it has no config.yaml. Name a run's directory such as {runs[0]}."
    )


def test_letters_continue_after_z():
    assert [letter(i) for i in (0, 25, 26, 27, 51, 52, 701, 702)] == [
        "A",
        "Z",
        "AA",
        "AB",
        "AZ",
        "BA",
        "ZZ",
        "AAA",
    ]


def test_runs_with_other_tokenizers_are_compared_by_bits_per_byte(capsys, pool):
    one, other = pool["baseline", 0], pool["placement=post", 0]
    config = read_config(one)
    (other / "config.yaml").write_text(config_yaml(config | {"tokenizer": {"name": "char"}}))
    results = json.loads((other / "summary.json").read_text())
    better = results["val/bits_per_byte"] / 2
    changed = results | {"val/loss": 99.0, "val/bits_per_byte": better, "data_fingerprint": "x"}
    (other / "summary.json").write_text(json.dumps(changed))
    _, page, _ = output(capsys, "compare", one, other)
    assert "The difference between tokenizer=char and tokenizer=byte is -" in page
    assert "bits per byte at" in page
    assert "different tokenizers: losses per token do not compare" in page
    assert "same data" not in page
    _, page, _ = output(capsys, "compare", one, other, "--metric", "val/loss")
    assert "tokenizer=byte is +" in page and "different tokenizers" in page
