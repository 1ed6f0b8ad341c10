"""A study by search in which no model is trained: a formula gives the loss of each run."""

import json
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

from tasks.logging import summary
from tasks.study import state
from tasks.study.resolve import StudyPlan
from tasks.study.search import SearchRunner, run_search
from tests.messages import messages
from xformer_kit.config import check
from xformer_kit.study.plan import Variant
from xformer_kit.study.study_node import complete

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


class SimulatedStudy:
    """A study whose runs are not trained: their loss is a formula. Every config is checked."""

    def __init__(self, config, **changes):
        design = {**NODE["design"], **changes.pop("design", {})}
        self.config, self.node = config, complete({**NODE, **changes, "design": design}, "small")
        self.trained: list[str] = []  # keys
        self.configs: dict[str, dict] = {}
        self.max_trained = math.inf  # runs after which it is stopped
        self.search = self.begin()

    def begin(self) -> SearchRunner:
        """A search runner as a new process makes it."""
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
            if len(self.trained) >= self.max_trained:
                return STOPPED
            self.trained.append(run.key)
            (directory := self.search.plan.directory(run)).mkdir(parents=True, exist_ok=True)
            config = self.configs[run.key]
            loss = (
                (math.log10(config["optim"]["lr"]) + 2) ** 2
                + 8 / config["model"]["dim"]
                + 0.01 * run.seed
            )
            (directory / "metrics.csv").write_text(
                f"step,val/loss\n10,{loss}\n20,{loss}\n30,{loss}\n"
            )
            summary.write({"val/loss": loss, "steps": 30}, directory / "summary.json")
        return 0

    def go(self, at_once: int = 1) -> int:
        return run_search(self.search, at_once, self.train, lambda: None)

    @property
    def points(self):
        return [(p["label"], p["status"], p["value"]) for p in self.search.facts()["points"]]
