"""A search: what it proposes, what it never trains, and what becomes of it when it is stopped. Runs
are played, and once real.
"""

import json
import math
import os
import shutil
import signal
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks.callbacks.pruning import Pruning
from tasks.logging import summary
from tasks.run.exit_codes import PRUNED, Pruned
from tasks.study import search as searching
from tasks.study import state
from tasks.study.resolve import StudyPlan
from tasks.study.search import SearchRunner, explore
from tasks.study.storage import trial_of
from tests.driving import environment
from tests.messages import messages
from tests.warm import Begun
from xformer_kit import compose
from xformer_kit.config import check
from xformer_kit.registry import ConfigError
from xformer_kit.study.plan import Variant
from xformer_kit.study.question import complete

NODE = {
    "name": "small",
    "question": "Which is best?",
    "baseline": {"optim.lr": 1e-3, "model.dim": 32, "attn.heads": 4, "position": "rotary"},
    "factors": {
        "optim.lr": {"low": 1e-4, "high": 1e-1, "log": True},
        "model.dim": {"low": 8, "high": 64, "step": 4},
        "attn.heads": [1, 2, 3, 5, 6, 7, 8],
        "position": ["alibi"],
    },
    "design": {"name": "search", "trials": 12, "startup": 6},
    "seeds": 3,
}
STOPPED = 143


@pytest.fixture(scope="module")
def config():
    return compose(["model.layers=1"])


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(searching, "to_overrides", lambda config: [])
    monkeypatch.setattr(os, "fsync", lambda file: None)  # no machine loses its power here
    return tmp_path


class World:
    """A study of which nothing is trained: what a run measures is a formula, and every model that
    is run is checked.
    """

    def __init__(self, config, **changes):
        design = {**NODE["design"], **changes.pop("design", {})}
        self.config, self.node = config, complete({**NODE, **changes, "design": design}, "small")
        self.trained: list[str] = []  # keys
        self.configs: dict[str, dict] = {}
        self.most = math.inf  # runs after which it is stopped
        self.search = self.begin()

    def begin(self) -> SearchRunner:
        """As a process does that is given the study."""
        costs = SimpleNamespace(
            of=lambda config: (SimpleNamespace(fingerprint="8ef4"), None, None), key=self.key
        )
        words = tuple(f"{key}={value}" for key, value in NODE["baseline"].items())
        base, _ = self.compose(words)
        levels = {key: str(value) for key, value in self.node["baseline"].items()}
        first = Variant("baseline", "baseline", levels, words, base, cost={"steps": 30})
        return SearchRunner(
            StudyPlan(
                self.node,
                [],
                (),
                [first],
                [],
                costs,
                self.compose,
                partial(replace, cost={"steps": 30}),
            )
        )

    def compose(self, words):
        made = json.loads(json.dumps(self.config))
        for word in words:
            path, value = word.split("=")
            group, _, key = path.partition(".")
            if key:
                made[group][key] = json.loads(value)
            else:
                made[group] = {"name": value}
        return made, messages(check(made, data=False))

    def key(self, config):
        words = [
            config[g][k]
            for g, k in (("optim", "lr"), ("model", "dim"), ("attn", "heads"), ("position", "name"))
        ]
        name = "-".join(map(str, [*words, config["seed"]]))
        self.configs[name] = json.loads(json.dumps(config))
        return name

    def train(self, runs) -> int:
        for run in runs:
            if state.of(self.search.plan.directory(run)).over:
                continue
            if len(self.trained) >= self.most:
                return STOPPED
            self.trained.append(run.key)
            (where := self.search.plan.directory(run)).mkdir(parents=True, exist_ok=True)
            config = self.configs[run.key]
            loss = (
                (math.log10(config["optim"]["lr"]) + 2) ** 2
                + 8 / config["model"]["dim"]
                + 0.01 * run.seed
            )
            (where / "metrics.csv").write_text(f"step,val/loss\n10,{loss}\n20,{loss}\n30,{loss}\n")
            summary.write({"val/loss": loss, "steps": 30}, where / "summary.json")
        return 0

    def go(self, at_once: int = 1) -> int:
        return explore(self.search, at_once, self.train, lambda: None)

    @property
    def points(self):
        return [(p["label"], p["status"], p["value"]) for p in self.search.facts()["points"]]


def test_a_search_tries_its_trials_and_confirms_the_best(home, config):
    world = World(config)
    assert world.go() == 0
    plan = json.loads(Path("outputs/studies/small/plan.json").read_text())
    points = plan["search"]["points"]
    assert len(points) == 12 and points[0]["label"] == "baseline"
    best = sorted(points[1:], key=lambda p: p["value"])[:3]
    assert plan["search"]["confirmed"] == [p["label"] for p in best]
    assert len(plan["runs"]) == len(world.trained) == len(set(world.trained)) == 12 + 4 * 2
    assert min(p["value"] for p in points) < points[0]["value"]
    world.search = world.begin()
    assert world.go() == 0 and len(world.trained) == 20  # nothing is left to do


def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(home, config):
    design = {"trials": 9, "confirm": 1}
    world = World(config, design=design)
    world.go()
    points = world.points
    shutil.rmtree("outputs")
    other = World(config, design=design)
    for other.most in (1, 5, 8):
        assert other.go() == STOPPED
        other.search = other.begin()
    other.most = math.inf
    assert other.go() == 0
    assert (
        other.points == points
        and other.trained == world.trained
        and len(set(other.trained)) == 9 + 2 * 2
    )


def test_no_invalid_model_is_ever_run(home, config):
    """Of such a space most points are none: heads do not divide dim, or channels of a head cannot
    be turned in pairs.
    """
    hard = {**NODE["factors"], "attn.heads": [3, 5, 6, 7], "model.dim": {"low": 8, "high": 64}}
    proposed = {}
    for sampler, trials in (("random", 36), ("tpe", 24)):
        design = {"trials": trials, "confirm": 0, "sampler": sampler}
        world = World(config, name=sampler, factors=hard, design=design, seeds=1)
        assert world.go() == 0
        found, facts = world.search.proposals.all(), world.search.facts()
        keys = {point["key"] for point in facts["points"]}
        assert len(world.points) == len(keys) == trials
        assert all(
            messages(check(world.configs[key], data=False)) == [] for key in [*keys, *world.trained]
        )
        assert (
            facts["refused"]
            == sum("refused" in t.user_attrs for t in found)
            == len(found) - trials - facts["again"]
        )
        proposed[sampler] = len(found)
    assert proposed["random"] + proposed["tpe"] > 200
    assert proposed["tpe"] / 24 < 0.75 * proposed["random"] / 36, proposed  # it learns what is none


def test_two_workers_never_run_the_same_trial_and_a_dead_ones_is_taken_again(home, config):
    world = World(config)
    one, two = world.search, world.begin()
    held, dead = ExitStack(), ExitStack()
    mine = [run.key for run in one.take(held, 2)]
    theirs = two.take(dead, 1)
    assert len({*mine, *(run.key for run in theirs)}) == 3
    assert two.take(dead, 1)[0].key not in {*mine, theirs[0].key}
    dead.close()  # as the system does when a process ends
    again = one.take(held, 1)
    assert [run.key for run in again] == [theirs[0].key] and len(one.trials()) == 4
    with state.claim(one.plan.directory(theirs[0])) as training, ExitStack() as third:
        assert (
            training and world.begin().take(third, 9)[0].key != theirs[0].key
        )  # its parent died, and it still trains
    held.close()


@pytest.mark.parametrize("storage", [None, "sqlite:///trials.db"])
def test_two_workers_may_tell_of_one_trial_at_once(home, config, monkeypatch, storage):
    """One is between its look and its word when the other says it: neither ends, and it is told
    once.
    """
    world = World(config, storage=storage)
    one, two = world.search, world.begin()
    with ExitStack() as held:
        world.train(one.take(held, 1))
    monkeypatch.setattr(two.study.sampler, "after_trial", lambda *_: one.tell())
    two.tell()
    assert [status for _, status, _ in world.points] == ["finished"] and one.proposals.all()[
        0
    ].value is not None


@pytest.mark.parametrize("storage", [None, "sqlite:///trials.db"])
def test_the_count_of_trials_holds_with_several_workers(home, config, storage):
    world = World(config, design={"trials": 4}, storage=storage)
    with ExitStack() as held:
        assert len(world.search.take(held, 3)) == 3
        assert len(world.begin().take(held, 3)) == 1
        assert world.begin().take(held, 3) == []


def test_a_proposal_that_was_not_judged_is_judged_by_who_comes_next(home, config):
    world, there = World(config), World(config, name="uninterrupted", runs="outputs/others")
    asked = world.search.proposals
    world.search.study.enqueue_trial(
        {"optim.lr": 1e-3, "model.dim": 32, "attn.heads": "4", "position": "rotary"}
    )
    asked.study.ask()  # and is killed
    with ExitStack() as held:
        runs = world.begin().take(held, 3)
        assert [run.variant.label for run in runs] == [
            run.variant.label for run in there.search.take(held, 3)
        ]
        assert runs[0].variant.label == "baseline"


def test_a_small_space_ends_when_all_of_it_was_tried(home, config):
    """8 points, of which heads=5 is none with dim=32."""
    few = {"attn.heads": [1, 2, 5], "position": ["alibi"]}
    world = World(
        config, factors=few, baseline={"attn.heads": 4, "position": "rotary"}, design={"confirm": 0}
    )
    assert world.go() == 0
    facts = world.search.facts()
    assert len(world.points) == 6 and facts["refused"] >= 2
    assert facts["end"] == "All 8 points of the space were tried or refused."


def test_what_is_excluded_is_not_tried(home, config):
    few = {"attn.heads": [1, 2], "position": ["alibi"]}
    exclude = [{"attn.heads": 2, "position": "alibi"}]
    base = {"attn.heads": 4, "position": "rotary"}
    world = World(config, factors=few, baseline=base, exclude=exclude, design={"confirm": 0})
    assert world.go() == 0
    assert len(world.points) == 5 and "attn.heads=2, position=alibi" not in {
        p[0] for p in world.points
    }


def test_runs_that_failed_or_diverged_are_told_and_tried_again_on_request(home, config):
    world = World(config, design={"trials": 3, "confirm": 0})

    def broken(runs):
        for run in runs:
            code = {0: 3, 1: 1}[len(world.trained) % 2]
            world.trained.append(run.key)
            summary.write(
                {"code": code, "text": "It broke.", "step": 7},
                world.search.plan.directory(run) / summary.ENDED,
            )
        return 0

    explore(world.search, 1, broken, lambda: None)
    assert [p[1] for p in world.points] == ["diverged", "failed", "diverged"]
    before = list(world.trained)
    world.node["retry"], world.trained, world.search = True, [], world.begin()
    assert world.go() == 0
    assert world.trained == before and [p[1] for p in world.points] == ["finished"] * 3


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            {"factors": {**NODE["factors"], "optim.lr": {"low": 1e-4, "high": 1e-2, "log": True}}},
            "another space: optim.lr was",
        ),
        ({"metric": "val/perplexity"}, "another metric."),
        ({"seeds": [7, 8]}, "another seed."),
    ],
)
def test_a_storage_of_another_search_is_refused(home, config, change, fault):
    World(config)
    with pytest.raises(
        ConfigError, match=rf"^study\.storage: .*search\.journal holds a search 'small' of {fault}"
    ):
        World(config, **change)
    World(config, design={"trials": 40})  # more trials are the same search


def test_a_hopeless_trial_is_ended_and_marked(home, config):
    """The others had 1.0 at step 10; the median is 1.0, so 0.9 goes on and 1.1 does not."""
    world = World(config, design={"trials": 6, "confirm": 0, "whole": 2})
    world.train = lambda runs: [_played(world, run, 1.0) for run in runs] and 0
    world.most = 2
    with ExitStack() as held:
        for _ in range(2):
            world.train(world.search.take(held, 1))
            world.search.tell()
        good, bad = world.search.take(held, 2)
        for run, loss, ends in ((good, 0.9, False), (bad, 1.1, True)):
            said = _said(run)
            saved = []
            watch = Pruning(SimpleNamespace(total=30), said, partial(saved.append, 1))
            task = SimpleNamespace(step=10, validation={"loss": loss})
            trainer = SimpleNamespace(is_global_zero=True, world_size=1)
            if ends:
                with pytest.raises(Pruned) as error:
                    watch.on_validation_end(trainer, task)
                assert error.value.code == PRUNED and saved == [1]
                with pytest.raises(Pruned):  # killed before it could end, it ends when it goes on
                    Pruning(SimpleNamespace(total=30), said, lambda: None).on_train_start(
                        trainer, task
                    )
            else:
                watch.on_validation_end(trainer, task)
            assert trial_of(said).storage.get_trial(said["id"]).intermediate_values == {10: loss}
        where = world.search.plan.directory(bad)
        summary.write(
            {"code": PRUNED, "text": "Ended early at step 10.", "step": 10}, where / summary.ENDED
        )
        world.search.tell()
    assert [p["status"] for p in world.search.facts()["points"]] == [
        "finished",
        "finished",
        "running",
        "pruned",
    ]
    assert state.of(where).status == "stopped"  # for another study it is not over
    assert state.of(where, pruned=True).over


def _said(run):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(run.report_to).value()


def _played(world, run, loss):
    where = world.search.plan.directory(run)
    (where / "metrics.csv").write_text(f"step,val/loss\n10,{loss}\n20,{loss}\n30,{loss}\n")
    summary.write({"val/loss": loss, "steps": 30}, where / "summary.json")
    return True


# One that is real.

TINY = [  # a baseline that learns nothing at its rate, so that the next point is not ended early
    "study=search",
    "study.baseline={optim.lr:1.0,model.dim:16,attn.heads:2}",
    "study.seeds=2",
    "study.design.confirm=1",
    "study.factors={optim.lr:{low:1e-4,high:1.0,log:true},model.dim:{low:8,high:24,step:4},"
    "attn.heads:[3,4]}",
    "study.design.trials=4",
    "study.design.whole=1",
    "experiment=copy",
    "model.layers=1",
    "data.seq_len=128",
    "data.batch_size=4",
    "trainer.max_steps=30",
    "trainer.val_every=10",
    "trainer.checkpoint_every=5",
    "trainer.log_every_n_steps=1",
    "trainer.limit_val_batches=1",
    "logger=none",
    "schedule.warmup=0",
]


def start(home: Path) -> Begun:
    return Begun(TINY, home, environment(home))


@pytest.mark.slow
def test_a_search_that_was_killed_ends_with_a_report(tmp_path):
    """Killed within its first run, it takes that trial again, confirms the best, and says what to
    type.
    """
    process, until = start(tmp_path), time.monotonic() + 300
    while not any((tmp_path / "outputs").glob("runs/*/checkpoints/last.ckpt")):
        assert time.monotonic() < until and process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)
    process = start(tmp_path)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, out + err
    folder = tmp_path / "outputs" / "studies" / "search"
    plan, report = (
        json.loads((folder / "plan.json").read_text()),
        (folder / "report.md").read_text(),
    )
    statuses = [point["status"] for point in plan["search"]["points"]]
    assert len(statuses) == 4 and set(statuses) <= {"finished", "pruned"}
    assert (
        len(plan["search"]["confirmed"]) == 1 and "finished" in statuses[1:]
    )  # the first is the baseline
    runs = [path for path in (tmp_path / "outputs" / "runs").iterdir() if path.is_dir()]
    assert {path.name for path in runs} == {run["key"] for run in plan["runs"]}
    assert (
        sum((path / "train.log").read_text().count(" INFO process ") for path in runs)
        == len(runs) + 1
    )
    assert (
        "| optuna |" in report
        and "## The search" in report
        and "Best at the other seeds: " in report
        and "python train.py " in report
        and "trials at seed" in out
    )
    ended = {
        path.name: json.loads((path / "ended.json").read_text())["code"]
        for path in runs
        if (path / "ended.json").exists()
    }
    assert ended == {
        point["key"]: PRUNED for point in plan["search"]["points"] if point["status"] == "pruned"
    }
