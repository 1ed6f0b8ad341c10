"""The sums of steps whose row of metrics.csv is not written yet are resumed."""

import pytest

from tasks.run.resume import resume_run
from tests.tasks.run.test_prolonged import stop_at
from tests.test_resume import state


@pytest.mark.extended
def test_a_row_of_steps_before_and_after_a_resume_is_that_of_the_whole_run(begin):
    """metrics.csv has means over the steps 5 to 8, of which the checkpoint of step 6 has the sums
    of two.
    """
    words = ["trainer.log_every_n_steps=4", "trainer.checkpoint_every=1"]
    _, whole = begin("whole", *words)
    run = stop_at(begin, 6, *words)
    assert state(run)["metric_sums"][1] > 0
    assert resume_run(run) == 0
    assert (run / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()
