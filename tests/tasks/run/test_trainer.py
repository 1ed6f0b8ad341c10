import inspect

import pytest
from lightning.pytorch import Trainer

from tests.messages import messages
from xformer_kit.config.options import trainer_schema


def test_every_argument_of_lightnings_trainer_is_an_option_or_has_a_replacement():
    signature = set(inspect.signature(Trainer.__init__).parameters) - {"self"}
    assert set(trainer_schema.LIGHTNING) | set(trainer_schema.REPLACED) == signature
    assert not set(trainer_schema.LIGHTNING) & set(trainer_schema.REPLACED)
    assert not set(trainer_schema.OURS) & signature


def test_the_defaults_have_no_fault():
    assert not messages(
        trainer_schema.faults(
            {name: option.default for name, option in trainer_schema.OPTIONS.items()}
        )
    )


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        (
            {"accumulate_grad_batches": 4},
            "trainer.accumulate_grad_batches: is decided by trainer.accumulate here; got 4.",
        ),
        ({"max_steps": -5}, "trainer.max_steps: must be at least 1; got -5."),
        (
            {"precision": "fp12"},
            "trainer.precision: no choice is called 'fp12'. Known: auto, 32-true, ",
        ),
        ({"devices": 0}, "trainer.devices: must be at least 1, or -1 for all; got 0."),
        (
            {"deviecs": 2},
            "trainer.deviecs: the config has no such key. Did you mean 'devices'?",
        ),
        (
            {"max_steps": None},
            (
                "trainer.max_steps: must be set if trainer.max_tokens and trainer.max_epochs are"
                " not; got null. Try trainer.max_steps=2000."
            ),
        ),
        ({"limit_val_batches": 0}, "trainer.limit_val_batches: must be above 0; got 0."),
        ({"max_time": "8h"}, "trainer.max_time: must be days:hours:minutes:seconds; got '8h'."),
        ({"max_time": {"eons": 1}}, "trainer.max_time: must be days:hours:minutes:seconds; got "),
        ({"max_time": "00:00:00:00"}, "trainer.max_time: must be above 0; got "),
        (
            {"gradient_clip_val": float("nan")},
            "trainer.gradient_clip_val: must be a finite number; got nan.",
        ),
        ({"strategy": "none"}, "trainer.strategy: no choice is called 'none'. Known: auto, ddp,"),
        (
            {"profiler": "simple"},
            ("trainer.profiler: is decided by trainer.profile here; got 'simple'."),
        ),
        ({"rank_timeout": 0}, "trainer.rank_timeout: must be above 0; got 0. null means no limit."),
        ({"val_every": True}, "trainer.val_every: must be a whole number or null; got true."),
    ],
)
def test_faults_of_the_trainer_start_with_their_path(node, fault):
    (found,) = messages(trainer_schema.faults(node))
    assert found.startswith(fault)
