"""Runs whose parameters are divided among processes, trainer=fsdp and hsdp: weights, metrics and
checkpoints are those of one process.
"""

import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from test_processes import EXPERTS, PLAIN, table
from train_processes import (
    TINY,
    environment,
    finish,
    kill_at,
    rank_environments,
    start,
    start_ranks,
    text,  # noqa: F401
)

from tasks.checkpoints import checkpoints
from tasks.cli import main
from tests.forked_train import ForkedTrain
from xformer_kit.checkpoint import DamagedError, read, read_mapping

EXACT = [*PLAIN, "trainer.precision=64-true", "trainer.max_steps=12", "trainer.val_every=5"]
EXACT += ["trainer.checkpoint_every=5", "schedule.warmup=3", "trainer.accumulate=1"]
VALUE = ["trainer.gradient_clip_algorithm=value", "trainer.gradient_clip_val=0.01"]
LATER = ["model.freeze=[embed,decoder.0]", "model.unfreeze_at=5"]
UNTIED = ["model.tie_embeddings=false"]
MEAN = ["checkpoints.average=3", "trainer.accumulate=2"]
MANY = {  # of examples for the last batches of the ranks to differ
    "averages": ["ema.decay=0.9", *EXPERTS, "trainer.accumulate=2"],
    "adapters": ["lora.rank=2", "lora.of=['*']", *VALUE],
    "muon": [
        "optim=muon",
        "optim.normalise=0.95",
        "model.checkpoint_activations=selective",
        *LATER,
    ],
    "encoder": ["model=encoder", "task=masked_language_modeling", *UNTIED, *MEAN],
}


def run_ranks(
    home: Path, run: Path, corpus: Path, words: list[str], count: int = 2, trainer: str = "fsdp"
) -> None:
    """Trains a run in several processes."""
    line = [*TINY, f"data.path={corpus}", f"hydra.run.dir={run}", *words]
    for rank in start_ranks(home, line, count, trainer):
        finish(rank)


def assert_equal_runs(one: Path, two: Path) -> None:
    """Weights, state of the optimizer, averages and metrics."""
    for name in ("state_dict", "optimizer", "average"):
        a, b = (dict(leaves(checkpoint(run).get(name))) for run in (one, two))
        assert a.keys() == b.keys()
        for key, value in a.items():
            torch.testing.assert_close(b[key], value, rtol=1e-9, atol=1e-12, msg=f"{name}{key}")
    rows = [table(run / "metrics.csv") for run in (one, two)]
    for a, b in zip(*rows, strict=True):
        for key in a:
            assert a[key] == b[key] or float(a[key]) == pytest.approx(float(b[key]), rel=1e-9)


def checkpoint(run: Path) -> dict:
    return read(run / "checkpoints" / "last.ckpt").entries()


def leaves(state, path=""):
    if isinstance(state, torch.Tensor):
        yield path, state
    elif isinstance(state, dict):
        for key, value in state.items():
            yield from leaves(value, f"{path}.{key}")


@pytest.mark.slow
@pytest.mark.cases(1)
@pytest.mark.parametrize("name", MANY)
def test_a_sharded_run_is_that_of_one_process(name, tmp_path, text):  # noqa: F811
    one, two = tmp_path / "one", tmp_path / "two"
    finish(start(tmp_path, one, text, *EXACT, *MANY[name]))
    run_ranks(tmp_path, two, text, [*EXACT, *MANY[name]])
    assert_equal_runs(one, two)


@pytest.mark.slow
@pytest.mark.extended
def test_a_sharded_run_starts_from_the_weights_of_another(tmp_path, text):  # noqa: F811
    """With new rows of the vocabulary, and adapters."""
    source, one, two = tmp_path / "source", tmp_path / "one", tmp_path / "two"
    finish(start(tmp_path, source, text, *EXACT, "model.vocab_size=300"))
    words = [*EXACT, f"init_from={source}", "model.vocab_size=310", "lora.rank=2"]
    finish(start(tmp_path, one, text, *words))
    run_ranks(tmp_path, two, text, words)
    assert_equal_runs(one, two)
    assert (one / "init_from.json").read_bytes() == (two / "init_from.json").read_bytes()


@pytest.mark.slow
@pytest.mark.extended
def test_groups_of_ranks_with_a_copy_each_train_as_one_process(tmp_path, text):  # noqa: F811
    words, one, four = (
        [*EXACT, *EXPERTS, "trainer.max_steps=6"],
        tmp_path / "one",
        tmp_path / "four",
    )
    finish(start(tmp_path, one, text, *words))
    run_ranks(tmp_path, four, text, [*words, "trainer.shard_ranks=2"], 4, "hsdp")
    assert_equal_runs(one, four)


@pytest.mark.slow
@pytest.mark.extended
def test_answers_of_a_sharded_model_are_those_of_one_process(tmp_path):
    pairs, words = tmp_path / "pairs.tsv", ["to", "be", "or", "not"]
    said = [f"{a} {b} {c}" for a in words for b in words for c in words]
    pairs.write_text("".join(f"{line}\t{line}\n" for line in said))
    options = ["task_defaults=null", "task=seq2seq", "model=encoder_decoder", "data=tsv"]
    options += [f"data.path={pairs}", "tokenizer=word", "model.layers=1", "data.seq_len=8"]
    options += ["task.decoded=5", *EXACT, "data.batch_size=8"]
    one, two = tmp_path / "one", tmp_path / "two"
    finish(start(tmp_path, one, pairs, *options))
    run_ranks(tmp_path, two, pairs, options)
    assert_equal_runs(one, two)
    results = [json.loads((run / "summary.json").read_text()) for run in (one, two)]
    assert results[0]["sample"] == results[1]["sample"]
    assert results[0]["flops_per_token"] == results[1]["flops_per_token"]


@pytest.mark.slow
@pytest.mark.extended
def test_a_killed_sharded_run_resumes_in_other_layouts(tmp_path, text):  # noqa: F811
    """In 2 processes, of which one is killed, then in 3, as ddp, and in one."""
    words = [*EXACT, "trainer.max_steps=60", "data.batch_size=6", "ema.decay=0.9"]
    one, run = tmp_path / "one", tmp_path / "run"
    finish(start(tmp_path, one, text, *words))
    line = [*TINY, f"data.path={text}", f"hydra.run.dir={run}", *words]
    first, second = start_ranks(tmp_path, line, trainer="fsdp")
    kill_at(second, run, 12)
    assert first.wait(30) != 0
    for count, strategy, step in ((3, "fsdp", 22), (2, "ddp", 32), (1, "auto", 60)):
        change(run, strategy=strategy, devices=count)
        env = rank_environments(tmp_path, count) if count > 1 else [environment(tmp_path)]
        ranks = [ForkedTrain([f"resume={run}"], tmp_path, each) for each in env]
        if count > 1:
            kill_at(ranks[-1], run, step)
            ranks[0].wait(30)
        else:
            finish(ranks[0])
    assert_equal_runs(one, run)


def change(run: Path, **options) -> None:
    """Changes options of the trainer in a run's config.yaml."""
    file = run / "config.yaml"
    config = yaml.safe_load(file.read_text())
    config["trainer"] |= options
    file.write_text(yaml.safe_dump(config))


@pytest.mark.slow
@pytest.mark.extended
def test_a_damaged_file_is_named_and_the_checkpoint_before_it_is_used(tmp_path, text):  # noqa: F811
    run = tmp_path / "run"
    run_ranks(tmp_path, run, text, EXACT)
    assert main(["consolidate", str(run), "--checkpoint", "last"]) == 0
    weights = load_file(run / "model.safetensors")
    torch.testing.assert_close(weights, checkpoint(run)["state_dict"], rtol=0, atol=0)
    folder = run / "checkpoints"
    shards = sorted(folder.glob("shards_*/*/*"))
    last = read_mapping(folder / "last.ckpt")["shards"]["folder"]
    file = next(path for path in shards if path.parent.parent.name == last)
    before = file.read_bytes()
    for damaged, reason in (
        (before[:-5] + bytes([before[-5] ^ 1]) + before[-4:], "does not have its checksum"),
        (before[: len(before) // 2], "does not have its checksum"),
        (None, "is missing"),
    ):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with pytest.raises(DamagedError, match=f"{last}/0/{file.name} {reason}"):
            read(folder / "last.ckpt")
        path, found = checkpoints.newest(folder)
        assert path.name == "previous.ckpt" and found.state_dict


@pytest.mark.slow
@pytest.mark.extended
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_with_checkpoints_in_the_background_is_the_same(ranks, tmp_path, text):  # noqa: F811
    """It is killed and resumed, too; the copies are those of their step, not of a later one."""
    words = [*EXACT, "trainer.max_steps=40", "checkpoints.keep_every=10", "ema.decay=0.9"]
    words += ["checkpoints.asynchronous=true"]
    one, run = tmp_path / "one", tmp_path / "run"
    finish(start(tmp_path, one, text, *words, "checkpoints.asynchronous=false"))
    line = [*TINY, f"data.path={text}", f"hydra.run.dir={run}", *words]
    envs = rank_environments(tmp_path, 2) if ranks == 2 else [environment(tmp_path)]
    trainer = ["trainer=fsdp", "trainer.devices=2"] if ranks == 2 else []
    begun = [ForkedTrain([*line, *trainer], tmp_path, each) for each in envs]
    kill_at(begun[-1], run, 23)
    for rank in begun[:-1]:
        rank.wait(30)
    envs = rank_environments(tmp_path, 2) if ranks == 2 else envs
    for rank in [ForkedTrain([f"resume={run}"], tmp_path, each) for each in envs]:
        finish(rank)
    assert_equal_runs(one, run)
    for step in (10, 20, 30, 40):
        found = [read(each / "checkpoints" / f"step_{step}.ckpt") for each in (one, run)]
        weights = [each.state_dict for each in found]
        torch.testing.assert_close(*weights, rtol=1e-9, atol=1e-12)
