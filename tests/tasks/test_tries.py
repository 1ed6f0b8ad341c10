"""`xformer try`: pairs of runs until a change is kept or discarded, and the history of tries."""

import json
import math

import pytest

from tasks.cli import main
from tasks.study.state import claim
from tasks.study.tries import FOLDER, Try, _discoveries, _result, run_try, sentences
from tests.study.test_noise import results as noisy_results
from tests.train_processes import TINY, text_file
from xformer_kit.registry import ConfigError
from xformer_kit.study.metric import metric


@pytest.mark.extended
def test_a_change_that_does_not_train_is_discarded_and_nothing_is_repeated(
    tmp_path, tmp_path_factory, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    base = " ".join([*TINY, f"data.path={text_file(tmp_path_factory)}", "optim.lr=0.01"])
    line = ["try", "optim.lr=1e-9", "--base", base]
    assert main([*line, "--json"]) == 10
    result = json.loads(capsys.readouterr().out)
    assert result["decision"] == "discard" and result["pairs"] == 3
    logs = {path: path.read_text() for path in tmp_path.glob("outputs/runs/*/train.log")}
    assert len(logs) == 6
    assert main(line) == 10
    assert "Discard optim.lr=1e-9: val/loss is worse by " in capsys.readouterr().out
    assert {path: path.read_text() for path in tmp_path.glob("outputs/runs/*/train.log")} == logs
    assert main(["tries"]) == 0
    page = capsys.readouterr().out
    assert page.count("discard") == 1 and "no" in page.split()
    # Pairs that are there count, whatever the budget.
    assert main([*line, "--budget", "1s", "--pairs", "1", "--json"]) == 10
    assert json.loads(capsys.readouterr().out)["pairs"] == 3
    other = ["try", "optim.lr=1e-8", "--base", base, "--budget", "1s"]
    assert main(other) == 11
    assert "The budget ended; a pair of runs takes" in capsys.readouterr().out
    assert len([*tmp_path.glob("outputs/runs/*/train.log")]) == 7  # one run of the base less


@pytest.mark.parametrize("change", ["foo", "norm = layer", "norm=rms,layer", "~mask"])
def test_a_change_must_set_choices_or_values(change):
    with pytest.raises(ConfigError, match=r"^change: must "):
        Try((), (change,), "val/loss").node()


@pytest.mark.parametrize(
    ("change", "base", "message"),
    [
        ("model.dim=16", "model.dim=16", "change: changes nothing of the base; got model.dim=16."),
        ("norm=layr", "", "norm: no norm is called 'layr'."),
        ("norm=layer", "model.dim=7", "attn.heads: must divide model.dim"),
    ],
)
def test_a_try_that_cannot_run_is_refused_before_it_trains(
    tmp_path, monkeypatch, capsys, change, base, message
):
    monkeypatch.chdir(tmp_path)
    assert main(["try", change, "--base", base]) == 2
    assert message in capsys.readouterr().err and not [*tmp_path.iterdir()]


@pytest.mark.parametrize("budget", ["20", "m", "5x", "-1s"])
def test_a_budget_is_a_time(budget, capsys):
    assert main(["try", "norm=layer", f"--budget={budget}"]) == 2
    assert "--budget: must be a time" in capsys.readouterr().err


def test_tries_of_the_same_runs_have_one_key():
    one = Try(("seed=1",), ("norm=layer",), "val/loss")
    same = Try(("seed=1",), ("norm=layer",), "val/loss", effect=0.1, pairs=5, seconds=60)
    other = Try(("seed=1",), ("norm=layer",), "val/loss", match="params")
    assert one.key == same.key != other.key
    node = one.node()
    assert node["factors"] == {"change": {"norm=layer": {"norm": "layer"}}}


def entry(evidence: float, decision: str = "keep", improves: bool = True) -> dict:
    return {"log_evidence": math.log(evidence), "decision": decision, "improves": improves}


def test_the_history_is_corrected_for_its_number():
    """e-BH at 5 %: one of one needs 20; of ten, the largest needs 200, two need 100 each."""
    null = [entry(1.0, "undecided")] * 9
    assert _discoveries([entry(20.1)]) == [True]
    assert _discoveries([entry(199), *null]) == [False] * 10
    assert _discoveries([entry(201), *null]) == [True] + [False] * 9
    assert _discoveries([entry(101), entry(101), *null[:8]]) == [True, True] + [False] * 8
    assert _discoveries([entry(1e6, "discard", improves=False)]) == [False]


RESULT = {
    "change": ["norm=layer"],
    "decision": "keep",
    "why": "",
    "difference": {"mean": -0.05, "low": -0.07, "high": -0.03},
    "pairs": 5,
    "effect": 0.5,
    "match": "none",
    "improves": True,
    "noise_of_one_run": 0.1,
    "noise_by_source": {},
    "pairs_to_decide": 5,
    "cost": dict.fromkeys(
        ("params", "flops_per_token", "tokens_per_second", "peak_memory_bytes", "seconds"), 1.0
    ),
}


def test_a_result_in_words():
    loss = metric("val/loss")
    assert sentences(RESULT, loss) == [
        "Keep norm=layer: val/loss is better by 0.050 nats (always-valid 95 % interval 0.030 to"
        " 0.070, 5 pairs).",
        "The noise of one run, its standard deviation, is 0.10 nats; the difference is smaller.",
    ]
    half = RESULT | {"match": "seconds", "cost": RESULT["cost"] | {"seconds": 0.5}}
    assert sentences(half, loss)[-2:] == [
        "The change has 0.5 of the time of a run of the base.",
        "Warning: the times are not equal, although seconds were matched.",
    ]

    assert sentences(RESULT | {"decision": "discard"}, loss)[0] == (
        "Discard norm=layer: val/loss is better by 0.050 nats, less than the 0.5 nats that matter"
        " (always-valid 95 % interval 0.030 to 0.070, 5 pairs)."
    )
    changes = {"decision": "undecided", "pairs_to_decide": 9}
    unclear = RESULT | changes | {"difference": {"mean": -0.05, "low": -0.2, "high": 0.1}}
    assert sentences(unclear, loss)[::2] == [
        "Undecided norm=layer: the difference in val/loss is -0.05 nats (always-valid 95 %"
        " interval -0.20 to 0.10, 5 pairs).",
        "If differences stay as they are, about 4 more pairs would decide.",
    ]
    one = RESULT | changes | {"difference": {"mean": -0.05, "low": None, "high": None}, "pairs": 1}
    assert sentences(one, loss)[0] == (
        "Undecided norm=layer: the difference in val/loss (nats) is -0.0500 (1 pair)."
    )
    cost = RESULT | {"cost": RESULT["cost"] | {"params": 1.21, "tokens_per_second": 0.8}}
    assert sentences(cost, loss)[-1] == (
        "The change has 1.21 of the parameters, 0.8 of the tokens per second of the base."
    )
    lost = RESULT | {"decision": "discard", "why": "1 of 1 runs diverged: it is not finite"}
    assert sentences(lost, loss) == ["Discard norm=layer: 1 of 1 runs diverged: it is not finite."]


def test_the_noise_of_a_try_by_source():
    """Two variants at four seeds, and the base with only the order varied and with only dropout."""
    tried = Try((), ("placement=post",), "val/loss", noise=True)
    assert tried.node()["noise_floor"] is True
    found = _result(tried, noisy_results())
    half = pytest.approx(found["noise_of_one_run"] / 2)
    assert found["noise_by_source"] == {"order": half, "dropout": 0.0}
    assert found["pairs"] == 4
    text = " ".join(sentences(found | {"why": ""}, metric("val/loss")))
    assert "With only one source varied: 0.06 by order of the data, 0 by dropout." in text


def test_two_tries_of_one_change_at_once(tmp_path, monkeypatch):
    """The second one would match the seconds of its own measurement."""
    monkeypatch.chdir(tmp_path)
    tried = Try(("model.dim=16",), ("norm=layer",), "val/loss")
    with claim(FOLDER, f".{tried.key}"), pytest.raises(ConfigError, match="by another process"):
        run_try(tried)
