"""A user's own callbacks: registered by a file, chosen in the config, checked like components, and
saved in checkpoints.
"""

import csv
import json

import pytest
from refusals import refused

from tasks.callbacks import user_callbacks
from tasks.checkpoints import checkpoints
from tasks.run.resume import resume_run
from tasks.run.start import start_run
from tests.user_components import forget_user_components
from xformer_kit import compose
from xformer_kit.config import preflight, read_config
from xformer_kit.config.options.callbacks import CALLBACKS
from xformer_kit.registry import ConfigError

MINE = '''
import json
from pathlib import Path

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from xformer_kit.config.options.callbacks import CALLBACKS
from xformer_kit.registry import at_least


@CALLBACKS.register("mine")
class Mine(Callback):
    """Counts the tokens of the last steps."""

    def __init__(self, run_dir: Path, *, every: int = 10, word: str | None = None):
        self.run_dir, self.every, self.word, self.steps = run_dir, every, word, []

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "step", every=1)

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        if task.step % self.every == 0:
            self.steps.append(task.step)

    def on_train_end(self, trainer, task):
        (self.run_dir / "mine.json").write_text(json.dumps([self.word, self.steps]))

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


@CALLBACKS.register("odd")
class Odd(Callback):
    def state_dict(self):
        return {"kept": [object()]}


@CALLBACKS.register("early")
class Early(EarlyStopping):
    def __init__(self, *, monitor: str = "val/loss", patience: int = 2):
        super().__init__(monitor, patience=patience)


@CALLBACKS.register("at")
class At(Callback):
    """Stops after a step that no validation follows, or before the first step."""

    def __init__(self, *, step: int, start: str = ""):
        self.step, self.start = step, start

    def on_fit_start(self, trainer, task):
        trainer.should_stop = self.start == "fit"

    def on_train_start(self, trainer, task):
        trainer.should_stop |= self.start == "train"

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        trainer.should_stop = task.step == self.step


@CALLBACKS.register("keep")
class Keep(ModelCheckpoint):
    def __init__(self, *, monitor: str = "val/loss"):
        super().__init__(monitor=monitor)


@CALLBACKS.register("plain")
class Plain:
    pass
'''


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "my_callbacks.py"
    file.write_text(MINE)
    yield str(file)
    forget_user_components([CALLBACKS])
    assert set(CALLBACKS) == {"norms", "pictures", "early_stopping"}


def test_a_callback_of_a_file_is_called_during_a_run(config, mine, tmp_path):
    made = config(f"components=[{mine}]", "callbacks.mine.every=7")
    assert made["callbacks"] == {"mine": {"every": 7, "word": None}}
    assert start_run(made, tmp_path / "run", (mine,)) == 0
    assert json.loads((tmp_path / "run" / "mine.json").read_text()) == [None, [7, 14]]
    assert read_config(tmp_path / "run")["callbacks"] == made["callbacks"]


def test_a_callback_after_a_built_in_one_is_created(config, mine, tmp_path):
    made = config(f"components=[{mine}]", "callbacks.norms={}", "callbacks.mine.every=7")
    assert list(made["callbacks"]) == ["norms", "mine"]
    assert list(user_callbacks.create_callbacks(made, tmp_path, {})) == ["mine"]


def test_the_state_of_a_callback_is_resumed(config, mine, tmp_path):
    made, folder = config(f"components=[{mine}]", "callbacks.mine.every=3"), tmp_path / "run"
    assert start_run(made, folder, (mine,)) == 0
    whole = json.loads((folder / "mine.json").read_text())
    assert whole == [None, [3, 6, 9, 12, 15, 18]]
    for name in (
        "last.ckpt",
        "best.ckpt",
        "previous.ckpt",
    ):  # as if it had been killed after the save of step 15
        state = folder / "checkpoints" / name
        if state.exists() and checkpoints.read(state).global_step > 15:
            state.unlink()
    assert checkpoints.newest(folder / "checkpoints")[1].callbacks == {
        "mine": {"steps": [3, 6, 9, 12, 15]}
    }
    (folder / "summary.json").unlink()
    (folder / "mine.json").unlink()
    assert resume_run(folder, (mine,)) == 0
    assert json.loads((folder / "mine.json").read_text()) == whole


RISING = [
    "optim.lr=3",
    "schedule.warmup=20",
    "trainer.max_steps=21",
    "trainer.val_every=1",
]  # the loss is lowest at step 2


@pytest.mark.extended
@pytest.mark.parametrize(
    "more", [[], ["ema.decay=0.5"], ["checkpoints.average=2"]], ids=["plain", "ema", "mean"]
)
def test_early_stopping_ends_the_run(config, mine, tmp_path, more, capsys):
    """Like trainer.max_time: the last step is validated, recorded and saved."""
    made, folder = (
        config(f"components=[{mine}]", "callbacks.early.patience=2", *RISING, *more),
        tmp_path / "run",
    )
    assert start_run(made, folder, (mine,)) == 0
    facts, last = (
        json.loads((folder / "summary.json").read_text()),
        checkpoints.read(folder / "checkpoints" / "last.ckpt"),
    )
    rows = list(csv.DictReader((folder / "metrics.csv").open(newline="")))
    assert facts["steps"] == last.global_step == int(rows[-1]["step"]) < 20
    stopped = f"stopped by callbacks.early at step {facts['steps']} of 21"
    assert facts["stopped"].startswith(f"{stopped} (Monitored metric val/loss did not improve")
    assert stopped in capsys.readouterr().out
    assert float(rows[-1]["val/loss"]) == pytest.approx(facts["val/loss"], rel=1e-8)
    assert (last.average is not None) == bool(more)
    if not more:
        losses = [float(row["val/loss"]) for row in rows]
        assert losses.index(min(losses)) == len(losses) - 3  # two validations without a lower one


def test_a_callback_that_ends_a_run_between_validations_has_its_last_step_validated(
    config, mine, tmp_path
):
    made, folder = config(f"components=[{mine}]", "callbacks.at.step=7"), tmp_path / "run"
    assert start_run(made, folder, (mine,)) == 0
    rows = list(csv.DictReader((folder / "metrics.csv").open(newline="")))
    assert [row["step"] for row in rows if row["val/loss"]] == ["7"]
    assert checkpoints.read(folder / "checkpoints" / "last.ckpt").global_step == 7


@pytest.mark.extended
@pytest.mark.parametrize("start", ["fit", "train"])
def test_a_stop_before_the_first_step_ends_the_run_after_it(config, mine, tmp_path, start):
    words = [f"callbacks.at={{step: -1, start: {start}}}", "callbacks.mine={}"]
    made, folder = config(f"components=[{mine}]", *words), tmp_path / "run"
    assert start_run(made, folder, (mine,)) == 0
    results = json.loads((folder / "summary.json").read_text())
    assert results["stopped"] == "stopped by callbacks.at or callbacks.mine at step 1 of 20"
    assert checkpoints.read(folder / "checkpoints" / "last.ckpt").global_step == 1
    (folder / "summary.json").unlink()
    assert resume_run(folder, (mine,)) == 0
    assert json.loads((folder / "summary.json").read_text())["steps"] == 1


def test_an_unknown_component_beside_given_files_is_in_none_of_them(mine):
    with pytest.raises(ConfigError) as error:
        preflight([f"components=[{mine}]", "position=qqqq"])
    assert str(error.value).endswith("its file: components=[my_position.py].")


@pytest.mark.parametrize("others", [["mine", "at"], ["at", "mine"]])
def test_callbacks_that_may_have_ended_a_run_are_named(config, mine, tmp_path, others):
    words = {"mine": "callbacks.mine={}", "at": "callbacks.at.step=7"}
    made = config(f"components=[{mine}]", *(words[name] for name in others))
    assert start_run(made, tmp_path / "run", (mine,)) == 0
    stopped = json.loads((tmp_path / "run" / "summary.json").read_text())["stopped"]
    names = " or ".join(f"callbacks.{name}" for name in others)
    assert stopped == f"stopped by {names} at step 7 of 20"


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ("callbacks.mine.every=0", "callbacks.mine.every: must be at least 1 step; got 0."),
        (
            "callbacks.mine.every=often",
            "callbacks.mine.every: must be a whole number; got 'often'. Try 10.",
        ),
        (
            "callbacks.mine.evry=3",
            (
                "callbacks.mine.evry: callback 'mine' has no option 'evry'. Did you mean 'every'?"
                " It has: every, word."
            ),
        ),
        (
            "callbacks.mien.every=3",
            (
                "callbacks.mien: no callback is called 'mien'. Did you mean 'mine'? Known: at,"
                " early, early_stopping, keep, mine, norms, odd, pictures, plain."
            ),
        ),
        (
            "callbacks.mine=3",
            "callbacks.mine: must be a mapping of options, {} where there are none; got 3.",
        ),
        (
            "callbacks=mine",
            (
                "callbacks: must map names to options; got 'mine'. Try callbacks={}, or"
                " callbacks.mine={}."
            ),
        ),
    ],
)
def test_an_invalid_config_has_one_message(mine, word, fault):
    assert refused([f"components=[{mine}]", word]) == [fault]


def test_a_callback_without_its_file_is_unknown():
    assert refused("callbacks.mine.every=3") == [
        "callbacks.mine: no callback is called 'mine'. Known: early_stopping, norms, pictures."
        " One of your own needs its file: components=[my_callbacks.py]."
    ]


def test_null_leaves_a_callback_out(mine):
    assert compose([f"components=[{mine}]", "callbacks.mine=null"])["callbacks"] == {}
    assert compose([])["callbacks"] == {}


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (
            "keep",
            (
                "callbacks.keep: is not supported in a run; got Keep. Set checkpoints.keep_best,"
                " .metric or .keep_every.\n"
            ),
        ),
        (
            "plain",
            (
                "callbacks.plain: must be a lightning.pytorch.Callback; got Plain. Derive it from"
                " that.\n"
            ),
        ),
        (
            "odd",
            (
                "callbacks.odd: its state_dict must hold tensors and plain values, as a checkpoint"
                " does; got object. Turn it into numbers, texts, lists or mappings.\n"
            ),
        ),
    ],
)
def test_a_callback_that_no_run_can_use_is_refused_before_the_first_step(
    config, mine, tmp_path, capsys, name, fault
):
    made = config(f"components=[{mine}]", f"callbacks.{name}={{}}")
    assert start_run(made, tmp_path / "run", (mine,)) == 2
    assert capsys.readouterr().err.endswith(fault)
    assert not (tmp_path / "run").exists()
