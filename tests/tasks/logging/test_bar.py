"""The progress bar and the lines in its place: their content, and when they are shown."""

from types import SimpleNamespace

import pytest

from tasks.callbacks.progress import ProgressObserver
from tasks.logging.bar import Bar


def test_a_live_bar_shows_the_last_step(capsys):
    bar = Bar(10, live=True)
    assert bar.due(1)  # nothing is shown yet
    bar.show(1, 2.0, 100.0, 9.0)
    assert not bar.due(2)
    assert bar.due(10)
    bar.show(10, 1.0, 100.0, 0.0)
    assert bar.progress.tasks[0].completed == 10
    bar.close()


def test_lines_in_place_of_a_bar_depend_only_on_the_time():
    bar = Bar(10, live=False)
    bar.show(1, 2.0, 100.0, 9.0)
    assert not bar.due(10)


def test_the_remaining_time_follows_the_seconds_per_step():
    """Steps of 20 tokens and half a second are 40 tokens/s, also after a first step of a minute,
    which compiles the model. After a step of one second, the shown seconds per step are between the
    two.
    """
    shown, clock = [], SimpleNamespace(spent=0.0)
    bar = SimpleNamespace(total=10, due=lambda step: True, show=lambda *row: shown.append(row))
    sums = SimpleNamespace(nats=6.0, tokens=3.0)
    task = SimpleNamespace(step=0, step_state=sums, tokens_per_step=lambda: 20.0)
    progress = ProgressObserver(bar, clock)
    progress.on_train_start(None, task)
    for seconds in (60.0, 0.5, 0.5, 1.0):
        task.step, clock.spent = task.step + 1, clock.spent + seconds
        progress.on_train_batch_end(None, task)
    assert shown[1:3] == [pytest.approx((step, 2.0, 40.0, (10 - step) * 0.5)) for step in (2, 3)]
    assert 0.5 * 6 < shown[3][3] < 1.0 * 6


def test_a_validation_is_a_line_above_the_bar():
    lines = []
    progress = ProgressObserver(SimpleNamespace(print_line=lines.append), SimpleNamespace())
    progress.on_validation_end(
        None, SimpleNamespace(step=1200, validation={"loss": 1.5, "perplexity": 4.5})
    )
    assert lines == ["step 1,200: validation loss 1.5000"]


def test_a_live_bar_states_what_runs_before_the_first_step():
    bar = Bar(10, live=True, first="first step, with compilation")
    assert bar.progress.tasks[0].fields["left"] == "first step, with compilation"
    bar.show(1, 2.0, 100.0, 9.0)
    assert bar.progress.tasks[0].fields["left"] == "0:00:09 left"
    bar.close()
