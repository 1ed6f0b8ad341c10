"""Parameters that are not trained, model.freeze, or only from a step on, model.unfreeze_at."""

import shutil
from unittest import mock

import pytest
import torch

from tasks.modules.module import Task
from tasks.process.exit_codes import Ended
from tasks.run.resume import resume_run
from tests.test_resume import same, state
from xformer_kit import ConfigError, build, compose
from xformer_kit.config import config_hash
from xformer_kit.optim.freezing import Freezing

FREEZE = "model.freeze=[embed,decoder.0.attn]"


def frozen(name):
    return name.startswith(("embed.", "decoder.0.attn."))


@pytest.mark.parametrize("extra", ["{}", "{unit_weights: {}}"])
def test_frozen_parameters_do_not_change_and_have_no_optimizer_state(begin, config, extra, capsys):
    words = [FREEZE, "ema.decay=0.9", "optim.weight_decay=0.5", f"extra={extra}"]
    code, run = begin("run", *words, "trainer.max_steps=2", "trainer.val_every=null")
    assert code == 0
    assert " frozen)" in capsys.readouterr().err
    saved = state(run)
    size = saved["state_dict"]["embed.weight"].shape[0]
    start = build(config(*words), vocab_size=256).state_dict()
    assert size == start["embed.weight"].shape[0]
    for name, value in saved["state_dict"].items():
        assert torch.equal(value, start[name]) == frozen(name), name
        assert torch.equal(saved["average"][name], start[name]) == frozen(name), name
    names = [name for group in saved["optimizer"]["param_groups"] for name in group["param_names"]]
    assert names and not any(map(frozen, names))
    assert len(saved["optimizer"]["state"]) == len(names)


@pytest.mark.parametrize(
    ("words", "pattern", "expected"),
    [
        (["model.tie_embeddings=true"], "head", {"embed.weight"}),
        (["model.tie_embeddings=true", "model.head_bias=true"], "head.weight", {"embed.weight"}),
        (["model.tie_embeddings=false"], "head", {"head.weight"}),
    ],
)
def test_a_shared_weight_is_frozen_by_each_of_its_names(words, pattern, expected):
    model = build(compose(words), vocab_size=20)
    Freezing(model, [pattern]).set_step(0)
    assert {name for name, p in model.named_parameters() if not p.requires_grad} == expected


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("until", [None, 1, 2, 4])
@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_parameters_have_a_gradient_from_unfreeze_at_on(in_graph, until, start):
    """Also in a run that resumes at step `start`; the optimizer has them if they are trained at
    all.
    """
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    freezing = Freezing(model, ["0"], until)
    freezing.prepare()
    assert model[0].weight.requires_grad == (until is not None)
    freezing.in_graph = in_graph
    freezing.set_step(start)
    for step in range(start, 5):
        if freezing.changes_at(step):
            freezing.set_step(step)
        trained = until is not None and step >= until
        of_ddp = in_graph and until is not None  # its messages have them from the first step on
        assert model[0].weight.requires_grad == (trained or of_ddp)
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        freezing.after_backward(step)
        assert [p.grad is not None for p in model.parameters()] == [trained] * 2 + [True] * 2


def test_a_run_trains_them_from_that_step_on(begin):
    code, run = begin(
        "run", FREEZE, "model.unfreeze_at=1", "trainer.max_steps=3", "trainer.val_every=null"
    )
    assert code == 0
    optimizer = state(run)["optimizer"]
    names = [name for group in optimizer["param_groups"] for name in group["param_names"]]
    assert any(map(frozen, names))
    for at, name in enumerate(names):
        assert optimizer["state"][at]["step"] == (2 if frozen(name) else 3), name


@pytest.mark.extended
def test_a_run_resumed_before_at_or_after_unfreeze_at_ends_the_same(
    begin,
):
    words = [FREEZE, "model.unfreeze_at=12", "model.dropout=0.1", "ema.decay=0.9"]
    words += ["trainer.checkpoint_every=4", "extra={unit_weights: {}}"]
    _, whole = begin("whole", *words, "checkpoints.average=1")
    saved = state(whole)
    assert saved["optimizer"]["state"][0]["step"] in (8, 20)
    steps = {float(each["step"]) for each in saved["optimizer"]["state"].values()}
    assert steps == {8.0, 20.0}  # of parameters trained from step 12 on, and of the others
    for at in (8, 12, 16):
        run = whole.with_name(f"resumed_{at}")
        cut = begin(run.name, *words, "callbacks={}")[1]
        for name in ("summary.json", "checkpoints/best.ckpt", "checkpoints/previous.ckpt"):
            (cut / name).unlink()
        shutil.copy(_checkpoint_at(begin, words, at), cut / "checkpoints" / "last.ckpt")
        assert resume_run(cut) == 0
        for key in ("state_dict", "optimizer", "average"):
            assert same(state(cut)[key], saved[key]), (at, key)


def _checkpoint_at(begin, words, at):
    """The checkpoint of step `at` of a run of 20 steps: the run is killed at step `at` + 1."""
    start = Task._start_step

    def stop(task):
        if task.step == at + 1:
            raise Ended("stopped")
        start(task)

    with mock.patch.object(Task, "_start_step", stop):
        code, run = begin(f"killed_{at}", *words)
    assert code == 1
    assert state(run)["global_step"] == at
    return run / "checkpoints" / "last.ckpt"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["model.freeze=[decoder.0.atn]"],
            "model.freeze: matches no parameter of the model; got decoder.0.atn. The nearest are:"
            " decoder.0.attn,",
        ),
        (["model.freeze=['*']"], "model.freeze: leaves no parameter to train; got ['*']."),
        (
            ["model.freeze=['*']", "model.unfreeze_at=5"],
            "model.freeze: leaves no parameter to train; got ['*'].",
        ),
        (["model.unfreeze_at=5"], "model.unfreeze_at: is about the parameters of model.freeze"),
        ([FREEZE, "model.unfreeze_at=0"], "model.unfreeze_at: must be at least 1 step; got 0."),
        ([FREEZE, "model.unfreeze_at=900"], "model.unfreeze_at: must be below the steps of the"),
    ],
)
def test_a_wrong_value_is_refused(words, answer):
    with pytest.raises(ConfigError) as error:
        compose(words)
    assert str(error.value).startswith(answer)


def test_a_config_without_it_has_the_hash_of_one_from_before_the_setting():
    config = compose()
    without = {k: v for k, v in config["model"].items() if k not in ("freeze", "unfreeze_at")}
    assert config_hash({**config, "model": without}) == config_hash(config)
