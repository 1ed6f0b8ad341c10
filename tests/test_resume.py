"""A run that is killed and resumed ends bit for bit where the uninterrupted run ends."""

import random

import pytest
import torch
from driving import (
    PATIENCE,
    TINY,
    Path,
    environment,
    finish,
    go_on,
    gone,
    kill_at,
    start,
    start_cold,
    start_ranks,
    text,  # noqa: F401
    wait_for,
)

from tests.warm import Begun, train


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def state(run: Path) -> dict:
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)


EXPERTS = [
    "ffn=moe",
    "ffn.experts=4",
    "ffn.router={name: sigmoid, correction: 0.01}",
]  # whose loads even out by a bias


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.extended)])
def test_a_killed_run_ends_where_the_uninterrupted_one_ends(tmp_path, text, processes):  # noqa: F811
    """Also where torchrun began it, with two ranks that are warm, and we go on by ourselves."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"

    def begin(run: Path) -> list[Begun]:
        if processes == 1:
            return [start(tmp_path, run, text)]
        return start_ranks(tmp_path, [*TINY, f"data.path={text}", f"hydra.run.dir={run}", *EXPERTS])

    for process in begin(whole):
        finish(process)
    process, *others = begin(cut)
    for step in sorted(random.sample(range(1, 70), 2 if processes == 1 else 1)):
        kill_at(process, cut, step)
        for other in others:
            other.wait()
        process, others = go_on(tmp_path, cut), []
    finish(process)
    a, b = state(whole), state(cut)
    assert a["global_step"] == b["global_step"] == 80
    for component in ("state_dict", "optimizer", "window", "best"):
        assert same(a[component], b[component]), component
    assert (cut / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
    biases = [value for name, value in a["state_dict"].items() if name.endswith("correction_bias")]
    assert all(bias.abs().max() > 0 for bias in biases) and bool(biases) == (processes > 1)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory) -> Path:
    """A directory with two files of pairs of several lengths."""
    folder, draw = tmp_path_factory.mktemp("pairs"), random.Random(0)
    for name, count in (("one", 150), ("two", 60)):
        rows = [draw.choices("abcdefgh", k=draw.randint(1, 12)) for _ in range(count)]
        (folder / f"{name}.tsv").write_text(
            "".join(f"{' '.join(row)} {i}\t{' '.join(row[::-1])}\n" for i, row in enumerate(rows))
        )
    return folder


ONE = ["data=tsv", "data.path=PAIRS/one.tsv"]
SEVERAL = [
    "data=mixture",
    "data.of={a: {name: tsv, path: PAIRS/one.tsv}, b: {name: tsv, path: PAIRS/two.tsv}}",
    "data.weights={a: 1, b: 2}",
]
PAIRED = [
    "experiment=null",
    "task=seq2seq",
    "model=encoder_decoder",
    "task.decoded=4",
    "model.dim=16",
    "model.layers=1",
    "model.dropout=0.2",
    "attn.heads=2",
    "tokenizer=char",
    "data.seq_len=48",
    "data.batch_tokens=384",
    "data.num_workers=1",
    "trainer.max_steps=50",
    "trainer.accumulate=2",
    "trainer.log_every_n_steps=1",
    "trainer.val_every=15",
    "trainer.checkpoint_every=7",
    "schedule.warmup=10",
    "logger=none",
]


@pytest.mark.slow
@pytest.mark.extended
@pytest.mark.parametrize("data", [ONE, SEVERAL], ids=["pairs", "a mixture of pairs"])
def test_a_killed_run_with_batches_of_tokens_ends_where_the_uninterrupted_one_ends(
    tmp_path, pairs, data
):
    words = [word.replace("PAIRS", str(pairs)) for word in (*PAIRED, *data)]
    whole, cut = tmp_path / "whole", tmp_path / "cut"

    def begin(run: Path) -> Begun:
        return Begun([*words, f"hydra.run.dir={run}"], tmp_path, environment(tmp_path))

    finish(begin(whole))
    process = begin(cut)
    kill_at(process, cut, random.randint(8, 43))
    finish(go_on(tmp_path, cut))
    a, b = state(whole), state(cut)
    assert a["global_step"] == b["global_step"] == 50
    for component in ("state_dict", "optimizer", "window", "best"):
        assert same(a[component], b[component]), component
    assert (cut / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
@pytest.mark.extended
def test_a_killed_run_leaves_no_loader_behind(tmp_path, text):  # noqa: F811
    """And its loaders are forks of one process that has imported torch, so that not each of them
    does.
    """
    run = tmp_path / "run"
    process = start_cold(tmp_path, run, text)
    wait_for(process, run, 3)
    servers = [child for child in children(process.pid) if children(child)]
    assert len(servers) == 1
    assert "libtorch_cpu" in Path(f"/proc/{servers[0]}/maps").read_text()
    kill_at(process, run, 3)
    assert gone(tmp_path)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_finished_run_says_so_and_one_without_checkpoint_starts_at_step_0(tmp_path, text):  # noqa: F811
    run = tmp_path / "run"
    process = start(tmp_path, run, text, "trainer.checkpoint_every=null", "trainer.val_every=null")
    kill_at(process, run, 3)
    assert not (run / "checkpoints").exists()
    finish(go_on(tmp_path, run))
    again = train([f"resume={run}"], tmp_path, environment(tmp_path))
    assert again.returncode == 0
    assert again.stdout == f"The run in {run} is finished: 80 steps. Nothing is left to do.\n"
    begun = train(
        [*TINY, f"data.path={text}", f"hydra.run.dir={run}"], tmp_path, environment(tmp_path)
    )
    assert begun.returncode == 2
    assert "holds a run with checkpoints already; nothing is overwritten." in begun.stderr


def test_other_data_than_the_run_began_with_is_refused(tmp_path, text):  # noqa: F811
    run, own = tmp_path / "run", tmp_path / "own.txt"
    own.write_text(text.read_text())
    kill_at(start(tmp_path, run, own), run, 20)
    own.write_text(text.read_text().replace("cat", "dog"))
    process = go_on(tmp_path, run)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2
    assert "data: the text must be the one that the run began with" in err
