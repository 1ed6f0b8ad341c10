"""A profile of some steps of a run, debug=profile."""

import json

import pytest


@pytest.mark.extended
def test_profile_writes_a_trace_and_a_table(begin):
    code, folder = begin("profile", "debug=profile", "trainer.max_steps=12", "trainer.profile=3")
    assert code == 0
    names = {
        event["name"] for event in json.loads((folder / "trace.json").read_text())["traceEvents"]
    }
    assert sum(name.startswith("ProfilerStep#") for name in names) == 3
    assert "aten::" in (folder / "profile.txt").read_text()


def test_a_short_run_is_profiled_from_its_middle(begin, capsys):
    code, folder = begin("brief", "debug=profile", "trainer.max_steps=3")
    assert code == 0
    assert "aten::" in (folder / "profile.txt").read_text()
    assert "profile.txt" in capsys.readouterr().out
