"""What a dry run says that a run will take: its steps with the optimizer's work, its validations,
and building the model.
"""

import pytest
import torch

from tasks.study import timing
from tasks.study.timing import Pace, StepClock, measure
from xformer_kit.data import prepare
from xformer_kit.optim import OPTIMIZERS


@pytest.mark.parametrize(
    ("steps", "every", "seconds"), [(150, 75, 14), (100, 75, 14), (50, 75, 9), (100, None, 9)]
)
def test_validations_are_counted(tmp_path, monkeypatch, steps, every, seconds):
    monkeypatch.setattr(
        timing, "measure", lambda config, prepared, min_seconds: Pace(4.0, 0.1, 5.0)
    )
    clock, config = (
        StepClock(tmp_path),
        {"seed": 3, "trainer": {"val_every": every, "max_steps": steps}},
    )
    assert clock.overhead(config, None, steps) == seconds
    assert (
        clock(config, None) == 0.1 == clock({**config, "seed": 9}, None) and len(clock.known) == 1
    )


def test_measured_steps_equal_those_of_a_run(config, monkeypatch):
    """Each moves the weights, and its gradient is that of the mean over all of its tokens."""
    norms, create = [], OPTIMIZERS.create

    def counted(node, **given):
        made = create(node, **given)
        step = made.step

        def seen():
            norms.append(
                float(torch.nn.utils.get_total_norm([p.grad for p in given["model"].parameters()]))
            )
            step()

        made.step = seen
        return made

    monkeypatch.setattr(OPTIMIZERS, "create", counted)
    for accumulate in (1, 2):
        made = config(f"trainer.accumulate={accumulate}", "trainer.limit_val_batches=2")
        assert min(measure(made, prepare(made))) > 0
    whole, halves = norms[: len(norms) // 2], norms[len(norms) // 2 :]
    assert len(whole) == timing.WARM + timing.MEASURED and len(set(whole)) == len(whole)
    assert whole == pytest.approx(halves, rel=1e-4)


def test_warm_up_and_load_affect_all_variants_equally(tmp_path, monkeypatch):
    """The first model of a process takes three times as long, and the machine is busier with every
    one that is measured.
    """
    calls = []

    def slower(config, prepared, min_seconds=0.0):
        calls.append(config["component"])
        return Pace(0.0, config["cost"] * (3.0 if len(calls) == 1 else 1 + 0.1 * len(calls)), 0.0)

    monkeypatch.setattr(timing, "measure", slower)
    clock = StepClock(tmp_path)
    costs = {"baseline": 1.0, "same": 1.0, "double": 2.0}
    asked = [({"component": n, "cost": c, "trainer": {}}, None) for n, c in costs.items()]
    clock.measure_all(asked)
    base, same, double = (clock(*one) for one in asked)
    assert same / base == pytest.approx(1, abs=0.1) and double / base == pytest.approx(2, abs=0.25)
    assert calls[1:4] == calls[4:7][::-1] == calls[7:10] == list(costs)
    clock.measure_all(asked)
    assert len(calls) == 10  # what is written down stays
