"""The estimated time of a run in a dry run: its steps, its validations, and all else."""

from types import SimpleNamespace

import pytest

from tasks.run import trial_run
from tasks.study.resolve import Costs
from tasks.study.timing import StepClock
from xformer_kit.study.numbers import compact


def test_validations_are_counted(tmp_path, config):
    """A validation of n batches takes as long as n thirds of a step; a run has one at its end, or
    one each val_every steps.
    """

    def overhead(*words):
        composed = config("data.batch_size=1", *words)
        clock = StepClock(tmp_path, lambda config: 0.3)
        found = Costs(clock).all(composed)["overhead"]
        data = Costs().data(composed)
        assert clock.known.keys() == {clock._key({**composed, "seed": 9})}
        return found / 0.1, len(data.valid_batches(data.rows))

    at_end, batches = overhead("trainer.val_every=null")
    assert at_end == pytest.approx(batches) and batches > 2
    assert overhead("trainer.max_steps=9", "trainer.val_every=4")[0] == pytest.approx(3 * batches)
    limited = "trainer.val_every=null", "trainer.limit_val_batches=2"
    assert overhead(*limited)[0] == pytest.approx(2)


def test_a_step_is_measured_in_real_training(config, monkeypatch):
    """Steps after the warm-up, without compilation, until they take long enough."""
    chosen, fit = [], trial_run.fit

    def record(composed, steps, callback):
        assert not composed["trainer"]["compile"]
        fit(composed, steps, callback)
        chosen.append(callback.ends)

    monkeypatch.setattr(trial_run, "fit", record)
    composed = config("trainer.compile=true")
    monkeypatch.setattr(trial_run, "MIN_SECONDS", 0.0)
    assert trial_run.step_seconds(composed) > 0
    assert len(chosen[0]) == trial_run.WARMUP_STEPS + trial_run.MEASURED_STEPS
    monkeypatch.setattr(trial_run, "MIN_SECONDS", 0.5)
    trial_run.step_seconds(composed)
    assert chosen[1][-1] - chosen[1][1] >= 0.5
    assert len(chosen[1]) > len(chosen[0])


def test_warm_up_and_load_affect_all_variants_equally(tmp_path):
    """The first model of a process takes three times as long, and the load of the machine grows
    with every measurement.
    """
    calls = []

    def slower(config):
        calls.append(config["component"])
        return config["cost"] * (3.0 if len(calls) == 1 else 1 + 0.1 * len(calls))

    clock = StepClock(tmp_path, slower)
    costs = {"baseline": 1.0, "same": 1.0, "double": 2.0}
    configs = [{"component": n, "cost": c, "trainer": {}} for n, c in costs.items()]
    clock.measure_all(configs)
    base, same, double = map(clock, configs)
    assert same / base == pytest.approx(1, abs=0.1) and double / base == pytest.approx(2, abs=0.25)
    assert calls[1:4] == calls[4:7][::-1] == calls[7:10] == list(costs)
    clock.measure_all(configs)
    assert len(calls) == 10  # known times are not measured again


def _lines(costs, width, monkeypatch):
    """The table of a dry run on a terminal of a width, for variants with these costs."""
    from io import StringIO

    from rich.console import Console

    from tasks.study import dry_run

    common = {"flops": 2.4e11, "tokens": 5e4, "steps": 100, "seconds": 2.0, "overhead": 0.0}
    variants = [
        SimpleNamespace(
            cost=common | cost, knob=("ffn.width=176",), off=-3e-4, title=title, rung=None
        )
        for title, cost in costs.items()
    ]
    node = {"design": {"name": "one_at_a_time"}, "budget": {"match": "params"}}
    monkeypatch.setattr(dry_run, "_missing_runs", lambda *_: "")
    out = StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    plan = SimpleNamespace(variants=variants, node=node, adaptive=False)
    dry_run.show(plan, 0.0, console)
    return out.getvalue().splitlines()


def test_the_table_of_a_dry_run_is_complete_at_80_columns(monkeypatch):
    costs = {"placement=sandwich": {"params": 232_000}}
    text = "\n".join(lines := _lines(costs, 80, monkeypatch))
    assert all(len(line) <= 80 for line in lines)
    words = (
        "placement=sandwich",
        "232k",
        "2.4e+11",
        compact(5e4),
        "0.020",
        "ffn.width=176",
        "-0.03",
    )
    assert all(word in text for word in words) and "…" not in text


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ((), "0 of them done; the others take about 21.0 s in"),
        (("a",), "the others take about 14.0 s in"),
        (("a", "b", "c"), "3 runs, all of them done."),
    ],
)
def test_the_forecast_is_the_sum_of_the_runs_that_are_missing(over, expected):
    """2 s of steps, 1 s of validations and 4 s for each run."""
    from tasks.study.dry_run import _missing_runs, measure_outside

    variant = SimpleNamespace(cost={"seconds": 2.0, "overhead": 1.0})
    plan = SimpleNamespace(
        runs=[SimpleNamespace(key=key, variant=variant) for key in "abc"],
        state=lambda run: SimpleNamespace(over=run.key in over),
        plain=lambda: {"study": {"stop": None}},
        node={"stop": None, "design": {"name": "one_at_a_time"}},
        adaptive=False,
    )
    assert expected in _missing_runs(plan, 4.0)
    if len(over) == 3:  # nothing is trained to measure its time
        assert measure_outside(plan, lambda *_: pytest.fail("trained")) == 0
