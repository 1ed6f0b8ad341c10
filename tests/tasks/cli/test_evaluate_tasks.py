"""xformer evaluate RUN --tasks, and xformer compare RUN RUN --tasks."""

import json
import math
import shutil
from types import SimpleNamespace

import pytest
import torch

from tasks.evaluation.harness import harness_faults
from tests.json_keys import differences, documented_keys
from tests.tasks.cli.local_task import ITEMS, needs_lm_eval
from tests.tasks.command_lines import fault, output
from xformer_kit import load
from xformer_kit.generate import score


@needs_lm_eval
def test_a_local_task_has_the_scores_of_the_model(capsys, finished, task):
    code, out, _ = output(capsys, "evaluate", finished, "--tasks", task, "--json")
    assert code == 0
    found = json.loads(out)
    assert [*differences(documented_keys(), found, "evaluate --tasks")] == []
    result = found["tasks"]["letters"]
    assert (result["count"], result["few_shot"], found["max_len"]) == (len(ITEMS), 0, 48)
    stored = json.loads((finished / "evaluations" / "letters.json").read_text())
    right = [
        float(answer_score(finished, c, a) > answer_score(finished, c, b)) for c, a, b in ITEMS
    ]
    assert [item["acc"] for item in stored["items"]] == right
    assert [item["id"] for item in stored["items"]] == list(range(len(ITEMS)))
    assert result["metrics"]["acc"]["value"] == pytest.approx(sum(right) / len(right))


@needs_lm_eval
def test_a_directory_has_tasks_and_groups(capsys, finished, task):
    metrics = "aggregate_metric_list: [{metric: acc, weight_by_size: true}]\n"
    group = task.with_name("group.yaml")
    group.write_text(f"group: all\ntask: [letters]\n{metrics}")
    _, page, _ = output(capsys, "evaluate", finished, "--tasks", task.parent, "--limit", 2)
    lines = page.splitlines()
    assert lines[1].split() == ["task", "metric", "value", "standard", "error", "items"]
    assert [line.split()[::4] for line in lines[2:4]] == [["letters", "2"], ["all", "2"]]
    stored = json.loads((finished / "evaluations" / "all.json").read_text())
    assert [item["id"] for item in stored["items"]] == ["letters/0", "letters/1"]
    assert fault(capsys, "evaluate", finished, "--tasks", group) == (
        f"--tasks: '{group}' is a group of tasks. Name its directory."
    )


def answer_score(run, context, answer):
    """log p of " answer" after a context, as lm-eval joins them."""
    ids = torch.tensor([list(f"{context} {answer}".encode())])
    return float(score(load(run, checkpoint="last"), ids)[0, -len(answer) - 1 :].sum())


@needs_lm_eval
def test_bits_per_byte_of_a_task_are_those_of_its_bytes(capsys, finished, task):
    """The weighted mean over items is the value of the task; the first byte of each is given."""
    text = task.read_text().replace("multiple_choice", "loglikelihood_rolling")
    text = text.replace('"{{answer}}"', '"{{context}} {{choices[0]}}"')
    text = text.replace("metric: acc", "metric: bits_per_byte")
    task.write_text(text.replace('doc_to_choice: "{{choices}}"\n', ""))
    code, out, _ = output(capsys, "evaluate", finished, "--tasks", task, "--json")
    assert code == 0
    value = json.loads(out)["tasks"]["letters"]["metrics"]["bits_per_byte"]["value"]
    stored = json.loads((finished / "evaluations" / "letters.json").read_text())
    items = [(item["bits_per_byte"], item["bytes"]) for item in stored["items"]]
    assert value == pytest.approx(sum(x * n for x, n in items) / sum(n for _, n in items))
    ids = torch.tensor([list(b"the cat sat")])
    nats = -float(score(load(finished, checkpoint="last"), ids).sum())
    assert items[0] == (pytest.approx(nats / (11 * math.log(2)), rel=1e-5), 11)


@needs_lm_eval
def test_a_task_that_cannot_be_used_is_one_sentence(capsys, finished, task, tmp_path):
    text = task.read_text()
    broken = tmp_path / "broken.yaml"
    other_key = text.replace("doc_to_text", "doc_to_txt")
    other_file = text.replace("items.jsonl", "none.jsonl")
    other_field = text.replace("context", "question")
    for content, expected in {
        "task: [": "ParserError: while parsing a flow node",
        "x: 1": "ValueError: Unknown config shape: keys=['x']. Correct its file.",
        other_key: "TypeError: TaskConfig.__init__() got an unexpected keyword argument",
        other_file: "FileNotFoundError: Unable to find",
        other_field: "UndefinedError: 'question' is undefined. Correct its file.",
    }.items():
        broken.write_text(content)
        sentence = fault(capsys, "evaluate", finished, "--tasks", broken)
        assert sentence.replace(f"{tmp_path}/", "").startswith(
            f"--tasks: task 'broken.yaml' cannot be loaded; got {expected}"
        )
    sentence = fault(capsys, "evaluate", finished, "--tasks", tmp_path / "none.yaml")
    assert sentence.startswith("--tasks: no file or directory has this name; got '")
    code, _, err = output(capsys, "evaluate", finished, "--tasks", task, "--max-len", 3)
    sentence = err.splitlines()[-1]  # after a progress bar
    assert code == 2 and sentence.startswith("--tasks: an answer: must have at most 3 tokens")
    sentence = fault(capsys, "evaluate", finished, "--tasks", task, "--max-len", 49)
    assert sentence == "--max-len: must be at most 48, the positions of the model; got 49."


@needs_lm_eval
def test_a_task_that_lm_eval_does_not_have_is_one_sentence(capsys, finished, monkeypatch):
    known = {"hellaswag": 1, "arc_easy": 2}
    manager = SimpleNamespace(all_tasks=list(known), task_index=known)
    monkeypatch.setattr("lm_eval.tasks.TaskManager", lambda: manager)
    assert fault(capsys, "evaluate", finished, "--tasks", "arc_easy,helaswag") == (
        "--tasks: lm-eval has no task 'helaswag'. Did you mean 'hellaswag'? lm-eval has 2; a local"
        " task is a path to a YAML file."
    )


def test_options_of_tasks_are_checked(capsys, finished, monkeypatch):
    sentence = fault(capsys, "evaluate", finished, "--limit", 3)
    assert sentence.startswith("--limit: has no effect on the validation split")
    monkeypatch.setattr("tasks.evaluation.harness.find_spec", lambda name: None)
    assert fault(capsys, "evaluate", finished, "--tasks", "hellaswag") == (
        '--tasks: needs the package lm_eval; got none. Use pip install "xformer_kit[eval]".'
    )


@pytest.mark.parametrize("task", ["seq2seq", "classification", "masked_language_modeling"])
def test_a_run_that_continues_no_text_is_refused(task, monkeypatch):
    monkeypatch.setattr("tasks.evaluation.harness.find_spec", lambda name: True)
    (found,) = harness_faults({"task": {"name": task}})
    assert str(found) == (
        f"--tasks: is for language models, which continue a text; this is a run of task={task}."
        " Leave it out."
    )


def results(run, right, **more):
    """Writes the scores of a task, acc of each item, into a new run's directory."""
    run.mkdir(exist_ok=True)
    (run / "config.yaml").touch()
    (run / "evaluations").mkdir(exist_ok=True)
    items = [{"id": i, "hash": f"{i}", "acc": score, "nats": i} for i, score in enumerate(right)]
    result = {"task": "T", "few_shot": 0, "items": items, "run": str(run), "checkpoint": "last"}
    result["metrics"] = {"acc": {"higher_is_better": True}, "nats": {"higher_is_better": False}}
    (run / "evaluations" / "T.json").write_text(json.dumps(result | more))
    return run


def test_runs_are_compared_item_by_item(capsys, tmp_path):
    """100 items: 20 that only the second has right, 5 that only the first has."""
    one = results(tmp_path / "one", [1] * 5 + [0] * 20 + [1] * 75)
    two = results(tmp_path / "two", [0] * 5 + [1] * 20 + [1] * 75)
    code, out, err = output(capsys, "compare", one, two, "--tasks", "T", "--json")
    keys = documented_keys()
    assert [*differences(keys, json.loads(out), "compare --tasks")] == []
    assert (code, err) == (0, "")
    (found,) = json.loads(out)["comparisons"]
    assert (found["first"], found["second"], found["difference"]) == (0.8, 0.95, -0.15)
    assert (found["items"], found["only_first"], found["only_second"]) == (100, 5, 20)
    assert found["sentence"].startswith("B is better than A on T by 0.15 of acc (95 % CI ")
    _, page, _ = output(capsys, "compare", one, two, one, "--tasks", "T", "--metric", "nats")
    lines = page.splitlines()
    assert lines[0] == f"A  {one}  last" and len(lines) == 6
    assert lines[4] == "A and B have the same nats on each of 100 items of T."


def test_only_common_items_are_compared(capsys, tmp_path):
    one, two = results(tmp_path / "one", [1] * 9), results(tmp_path / "two", [1] * 4)
    _, page, _ = output(capsys, "compare", one, two, "--tasks", "T")
    assert page.endswith("each of 4 items of T. 5 items of only one of them are left out.\n")


def test_results_that_do_not_compare_are_one_sentence(capsys, tmp_path):
    one, two = results(tmp_path / "one", [1] * 9), results(tmp_path / "two", [1] * 9, few_shot=5)
    words = ["compare", one, two, "--tasks"]
    assert fault(capsys, *words, "T") == (
        "--tasks: the results of 'T' have different numbers of examples, --few-shot, so that they"
        " do not compare. Evaluate both runs again."
    )
    results(two, [1] * 9)
    sentence = fault(capsys, *words, "T", "--metric", "f1")
    assert sentence == "--metric: 'T' has no score of each item by 'f1'. It has: acc, nats."
    sentence = fault(capsys, *words, "S")
    assert sentence.startswith(f"--tasks: {one} has no results of 'S'. It has: T. Or: ")
    assert fault(capsys, "compare", one, "--tasks", "T").startswith("compare: takes two runs")
    shutil.rmtree(two)
    assert fault(capsys, *words, "T").startswith(f"--tasks: {two} has no results of 'T'.")
