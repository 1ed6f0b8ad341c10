"""A run that is killed and resumed ends with the same bits as an uninterrupted run."""

import random

import pytest
import torch
from train_processes import (
    TIMEOUT,
    TINY,
    Path,
    all_ended,
    environment,
    finish,
    kill_at,
    resume,
    start,
    start_new_python,
    start_ranks,
    text,  # noqa: F401
    wait_for,
)

from tests.forked_train import ForkedTrain, train


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
]  # the correction bias is state of the run


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.extended)])
def test_a_killed_run_resumes_exactly(tmp_path, text, processes):  # noqa: F811
    """Also if torchrun started it with two ranks, and one command resumes it."""
    uninterrupted, killed = tmp_path / "uninterrupted", tmp_path / "killed"
    steps = "trainer.max_steps=44"  # 4 epochs

    def begin(run: Path) -> list[ForkedTrain]:
        if processes == 1:
            return [start(tmp_path, run, text, steps)]
        words = [*TINY, f"data.path={text}", f"hydra.run.dir={run}", *EXPERTS, steps]
        return start_ranks(tmp_path, words)

    for process in begin(uninterrupted):
        finish(process)
    process, *others = begin(killed)
    for step in sorted(random.sample(range(1, 36), 2 if processes == 1 else 1)):
        kill_at(process, killed, step)
        for other in others:
            other.wait()
        process, others = resume(tmp_path, killed), []
    finish(process)
    a, b = state(uninterrupted), state(killed)
    assert a["global_step"] == b["global_step"] == 44
    for component in ("state_dict", "optimizer", "metric_sums", "best_steps"):
        assert same(a[component], b[component]), component
    assert (killed / "metrics.csv").read_bytes() == (uninterrupted / "metrics.csv").read_bytes()
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


ONE = ["data=tsv", "data.path=PAIRS/one.tsv", "trainer.max_steps=null", "trainer.max_tokens=19200"]
SEVERAL = [
    "data=mixture",
    "data.of={a: {name: tsv, path: PAIRS/one.tsv}, b: {name: tsv, path: PAIRS/two.tsv}}",
    "data.weights={a: 1, b: 2}",
]
PAIRED = [
    "task_defaults=null",
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
@pytest.mark.parametrize("data", [ONE, SEVERAL], ids=["a length in tokens", "a mixture of pairs"])
def test_a_killed_run_with_batches_of_tokens_ends_where_the_uninterrupted_one_ends(
    tmp_path, pairs, data
):
    words = [word.replace("PAIRS", str(pairs)) for word in (*PAIRED, *data)]
    uninterrupted, killed = tmp_path / "uninterrupted", tmp_path / "killed"

    def begin(run: Path) -> ForkedTrain:
        return ForkedTrain([*words, f"hydra.run.dir={run}"], tmp_path, environment(tmp_path))

    finish(begin(uninterrupted))
    process = begin(killed)
    kill_at(process, killed, random.randint(8, 43))
    finish(resume(tmp_path, killed))
    a, b = state(uninterrupted), state(killed)
    assert a["global_step"] == b["global_step"] == 50
    for component in ("state_dict", "optimizer", "metric_sums", "best_steps"):
        assert same(a[component], b[component]), component
    assert (killed / "metrics.csv").read_bytes() == (uninterrupted / "metrics.csv").read_bytes()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.extended
def test_loaders_of_a_killed_run_end(tmp_path, text):  # noqa: F811
    """Its loaders are forks of one process that has imported torch."""
    run = tmp_path / "run"
    process = start_new_python(tmp_path, run, text)
    wait_for(process, run, 3)
    servers = [child for child in children(process.pid) if children(child)]
    assert len(servers) == 1
    assert "libtorch_cpu" in Path(f"/proc/{servers[0]}/maps").read_text()
    kill_at(process, run, 3)
    assert all_ended(tmp_path)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.extended
def test_a_run_without_a_checkpoint_restarts(tmp_path, text):  # noqa: F811
    run = tmp_path / "run"
    process = start(tmp_path, run, text, "trainer.checkpoint_every=null", "trainer.val_every=null")
    kill_at(process, run, 3)
    assert not (run / "checkpoints").exists()
    finish(resume(tmp_path, run))
    again = train([f"resume={run}"], tmp_path, environment(tmp_path))
    assert again.returncode == 0
    assert again.stdout.startswith(
        f"The run in {run} is finished: 80 steps. To train it for longer:"
    )
    begun = train(
        [*TINY, f"data.path={text}", f"hydra.run.dir={run}"], tmp_path, environment(tmp_path)
    )
    assert begun.returncode == 2
    assert "holds a run with checkpoints already; nothing is overwritten." in begun.stderr


@pytest.mark.extended
def test_resuming_with_other_data_is_refused(tmp_path, text):  # noqa: F811
    run, own = tmp_path / "run", tmp_path / "own.txt"
    own.write_text(text.read_text())
    kill_at(start(tmp_path, run, own), run, 20)
    own.write_text(text.read_text().replace("cat", "dog"))
    process = resume(tmp_path, run)
    _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 2
    assert "data: the text must be the one that the run began with" in err
