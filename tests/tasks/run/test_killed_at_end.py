"""A run that is killed at its end, in any state of its files, is resumed to the same results."""

import csv
import json
import os
import random
import shutil
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import tasks
from tasks.run.resume import resume_run
from tasks.run.start import start_run
from xformer_kit import compose
from xformer_kit.api import load

pytestmark = pytest.mark.extended

PAIRS = [
    "task_defaults=null",
    "task=seq2seq",
    "model=encoder_decoder",
    "task.decoded=4",
    "task.beam=2",
    "model.dim=16",
    "model.layers=1",
    "attn.heads=2",
    "tokenizer=char",
    "data.seq_len=24",
    "data.batch_size=8",
    "trainer.max_steps=32",
    "trainer.log_every_n_steps=3",
    "trainer.val_every=16",
    "trainer.checkpoint_every=8",
    "schedule.warmup=2",
    "optim.lr=0.03",
    "logger=none",
    "trainer.accelerator=cpu",
]
KEPT = 16  # of the last states of a directory
TASKS = str(Path(tasks.__file__).parent)


class States:
    """Copies of a run's directory, one for each state that it has between two lines of the tasks:
    what a kill at that moment leaves.
    """

    def __init__(self, run_dir: Path, copies: Path):
        self.run_dir, self.copies, self.count = run_dir, copies, 0
        self.last: object = None
        self.lines = dict.fromkeys(("metrics.csv", "samples.csv"), 0)
        self.lost: list[str] = []  # tables that had fewer lines than before
        self.kept: deque[Path] = deque(maxlen=KEPT)

    def __call__(self, frame, event, arg):
        """A trace function, which is also called for each line of the frames that it returns itself
        for.
        """
        if not frame.f_code.co_filename.startswith(TASKS):
            return None
        self._copy_if_changed()
        return self

    def _copy_if_changed(self) -> None:
        if not self.run_dir.is_dir():
            return
        try:
            now = list(file_states(self.run_dir))
        except FileNotFoundError:
            return
        if now != self.last:
            self.last, self.count = now, self.count + 1
            for name, before in self.lines.items():
                files = (Path(path) for path, *_ in now if path.endswith(f"/{name}"))
                self.lines[name] = sum(file.read_bytes().count(b"\n") for file in files)
                self.lost += [name] * (self.lines[name] < before)
            self.kept.append(self.copies / str(self.count))
            shutil.copytree(self.run_dir, self.kept[-1])


def file_states(directory: str | Path) -> Iterator[tuple[str, int, int, int]]:
    """Yields (path, size, time of change, inode) of each file below a directory but train.log."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from file_states(entry.path)
            elif entry.name != "train.log":
                stat = entry.stat()
                yield entry.path, stat.st_size, stat.st_mtime_ns, stat.st_ino


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a if k != "spent")
    return a == b if not isinstance(a, (list, tuple)) else len(a) == len(b) and all(map(same, a, b))


def outcome(folder: Path) -> dict:
    """What a run leaves that its steps determine."""
    summary = json.loads((folder / "summary.json").read_text())
    figures = {
        k: v
        for k, v in summary.items()
        if k.startswith(("val/", "test/")) or k in ("sample", "steps", "stopped")
    }
    states = {
        name: torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)
        for name in ("last", "best")
    }
    tables = {
        name: list(csv.reader((folder / name).open())) for name in ("metrics.csv", "samples.csv")
    }
    return (
        {"figures": figures, "weights": dict(load(folder, checkpoint="last").state_dict())}
        | states
        | tables
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "averages", [["ema.decay=0.97"], ["checkpoints.average=3"], []], ids=["ema", "mean", "none"]
)
def test_a_run_killed_at_its_end_is_resumed_to_the_same_end(tmp_path, monkeypatch, averages):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    draw, pairs = random.Random(0), tmp_path / "pairs.tsv"
    rows = [draw.choices("abcd", k=draw.randint(2, 5)) for _ in range(60)]
    pairs.write_text(
        "".join(f"{' '.join(row)} {i}\t{' '.join(row[::-1])}\n" for i, row in enumerate(rows))
    )
    whole = tmp_path / "whole"
    states = States(whole, tmp_path / "copies")
    test = shutil.copy(pairs, tmp_path / "test.tsv")
    config = compose(
        [*PAIRS, "data=tsv", f"data.path={pairs}", f"data.test_path={test}", *averages]
    )
    sys.settrace(states)
    code = start_run(config, whole)
    sys.settrace(None)
    assert code == 0
    assert not states.lost and states.lines["samples.csv"] == 3  # a header and two validations
    wanted = outcome(whole)
    assert any(name.startswith("test/") for name in wanted["figures"])
    steps = [
        torch.load(c / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
        for c in states.kept
        if (c / "checkpoints" / "last.ckpt").exists()
    ]
    assert {24, 32} <= set(steps)  # from before the last validation's checkpoint to after it
    for copy in states.kept:
        assert resume_run(copy) == 0
        found = outcome(copy)
        for name, value in wanted.items():
            assert same(value, found[name]), (copy.name, name)
