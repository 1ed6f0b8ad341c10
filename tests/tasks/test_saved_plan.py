"""A damaged plan.json of a study is one sentence with the path, the rule and the value."""

import copy
import json

import pytest

from tasks.study.saved_plan import FIX, read_plan
from xformer_kit.registry import ConfigError

PLAN = {
    "study": {
        "name": "x",
        "question": None,
        "metric": "val/loss",
        "margin": 0.1,
        "design": {"name": "one_at_a_time"},
        "budget": {"match": "none", "tolerance": 0.01},
    },
    "pool": "../../runs",
    "command": ["study=x"],
    "components": [],
    "variants": [
        {
            "label": "baseline",
            "name": "baseline",
            "levels": {"norm": "rms"},
            "words": ["norm=rms"],
            "tuned": [],
            "knob": [],
            "off": 0.0,
            "cost": {"steps": 8},
            "rung": None,
        }
    ],
    "runs": [{"variant": 0, "seed": 0, "key": "ab"}],
    "search": None,
}


def read(folder, plan):
    (folder / "plan.json").write_text(json.dumps(plan))
    return read_plan(folder)


@pytest.mark.parametrize(
    ("keys", "value", "fault"),
    [
        (["study", "name"], 3, "study.name: must be a text; got 3."),
        (["study", "margin"], "a", "study.margin: must be a number; got 'a'."),
        (["study", "budget"], {"match": "none"}, "study.budget: must have tolerance; got match."),
        (["variants"], {}, "variants: must be a list; got {}."),
        (["variants"], [], "variants: must hold the 1 that runs name; got 0."),
        (
            ["variants", 0, "off"],
            float("nan"),
            "variants[0].off: must be a finite number; got nan.",
        ),
        (["variants", 0, "words"], ["a", 1], "variants[0].words[1]: must be a text; got 1."),
        (["variants", 0, "levels"], {"a": 1}, "variants[0].levels.a: must be a text; got 1."),
        (["runs", 0, "seed"], True, "runs[0].seed: must be a whole number; got true."),
        (
            ["runs", 0, "variant"],
            1,
            "variants: must hold the 2 that runs name; got 1.",
        ),
        (["search"], {"trials": 3}, "search: must have seed, end, refused, again, confirmed, "),
    ],
)
def test_a_damaged_plan_is_one_sentence(tmp_path, keys, value, fault):
    assert read(tmp_path, PLAN) == PLAN
    plan = node = copy.deepcopy(PLAN)
    *path, last = keys
    for key in path:
        node = node[key]
    node[last] = value
    with pytest.raises(ConfigError) as error:
        read(tmp_path, plan)
    (message,) = error.value.messages
    assert message.startswith(f"{tmp_path / 'plan.json'}: {fault}") and message.endswith(FIX)
