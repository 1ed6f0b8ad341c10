"""What the bar shows, and when."""

from tasks.bar import Bar


def test_a_live_bar_shows_the_last_step(capsys):
    bar = Bar(10, live=True)
    assert bar.due(1)  # nothing is shown yet
    bar.show(1, 2.0, 100.0, 9.0)
    assert not bar.due(2)
    assert bar.due(10)
    bar.show(10, 1.0, 100.0, 0.0)
    assert bar.progress.tasks[0].completed == 10
    bar.close()


def test_lines_in_place_of_a_bar_come_by_the_clock_alone():
    bar = Bar(10, live=False)
    bar.show(1, 2.0, 100.0, 9.0)
    assert not bar.due(10)
