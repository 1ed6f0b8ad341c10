"""Paths that begin with ~, and overrides that do."""

from pathlib import Path

import pytest

from tests.tasks.command_lines import fault, output
from xformer_kit.text.user_path import is_override, user_path

NOBODY = "~no_user_has_this_name"


def test_a_home_directory_is_inserted_and_an_unknown_one_is_none(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert user_path("~/runs") == Path("/home/me/runs")
    assert user_path(f"{NOBODY}/runs") == Path(f"{NOBODY}/runs")


def test_an_override_takes_out_a_key_or_has_a_value(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~run").mkdir()
    overrides = ["attn.heads=8", "~hidden_size", "~model.dim"]
    paths = ["~run", "~/run", "~", f"{NOBODY}/run", "outputs/run"]
    assert [word for word in (*overrides, *paths) if is_override(word)] == overrides


@pytest.mark.parametrize("command", ["evaluate", "compare", "report", "status", "reproduce"])
def test_no_command_fails_at_a_home_directory_that_is_unknown(command, capsys):
    assert fault(capsys, command, NOBODY, *["b"] * (command == "compare")).startswith(f"{NOBODY}: ")


@pytest.mark.parametrize("command", ["describe", "explain", "diff", "find-lr", "find-batch"])
def test_a_command_that_composes_takes_such_a_word_for_an_override(command, capsys):
    sentence = "hidden_size: cannot be composed: Could not delete from config."
    assert fault(capsys, command, "~hidden_size").startswith(sentence)


def test_a_key_can_be_taken_out_of_a_model_to_describe(capsys):
    assert output(capsys, "describe", "~task_defaults")[0] == 0
