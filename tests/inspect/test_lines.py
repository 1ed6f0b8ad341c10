"""Learning curves and norms are those that runs wrote down."""

import pytest
from drawings import assert_ticks_are_exact

from xformer_kit.config import config_yaml
from xformer_kit.inspect import plot_curves, plot_norms
from xformer_kit.laws.case import plain
from xformer_kit.registry import ConfigError


@pytest.fixture
def runs(tmp_path):
    """A run for each seed: two of them, the second with one row that is not written to its end."""

    def write(name, metrics=None, norms=None, **changes):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.yaml").write_text(config_yaml(plain() | changes))
        for file, text in (("metrics.csv", metrics), ("norms.csv", norms)):
            if text is not None:
                (folder / file).write_text(text)
        return folder

    rows = "step,train/loss,val/loss\n10,3.0,\n20,2.5,2.75\n30,2.25,\n40,2.0,2.5\n"
    norms = "step,activation/decoder.0,activation/decoder.1,gradient/decoder.0,gradient/embed\n"
    norms += "5,1.0,2.0,0.5,3.0\n10,1.5,2.5,0.25,2.0\n"
    return (
        write("a", rows, norms),
        write("b", rows.replace("2.75", "2.85") + "50,1.", seed=1),
        write("c", "step,train/loss\n"),
    )


def lines(axes):
    return {line.get_label(): (line.get_xdata().tolist(), line.get_ydata().tolist()) for line in axes.lines}


def test_curves_are_those_of_the_files(runs):
    train, val = plot_curves(runs[:2]).figure.axes
    assert (train.get_ylabel(), val.get_ylabel()) == ("train/loss", "val/loss")
    assert lines(val) == {"seed=0": ([20, 40], [2.75, 2.5]), "seed=1": ([20, 40], [2.85, 2.5])}
    assert lines(train)["seed=1"] == ([10, 20, 30, 40], [3.0, 2.5, 2.25, 2.0])
    (alone,) = plot_curves([runs[0]], ["train/loss"]).figure.axes
    assert alone.get_ylabel() == "train/loss" and len(alone.lines) == 1


def test_many_records_of_a_loss_in_training_are_averaged(runs):
    rows = "".join(f"{step},{step}\n" for step in range(1, 121))
    (runs[0] / "metrics.csv").write_text(f"step,train/loss\n{rows}")
    (axes,) = plot_curves([runs[0]]).figure.axes
    ((steps, values),) = lines(axes).values()
    assert steps == list(range(2, 121, 2)) and values[:2] == [1.5, 3.5]


def test_norms_are_those_of_the_file(runs):
    activation, gradient = plot_norms(runs[0]).figure.axes
    assert lines(activation) == {"decoder.0": ([5, 10], [1.0, 1.5]), "decoder.1": ([5, 10], [2.0, 2.5])}
    assert lines(gradient) == {"decoder.0": ([5, 10], [0.5, 0.25]), "embed": ([5, 10], [3.0, 2.0])}


@pytest.mark.parametrize("last", [2, 7, 13, 20, 30, 12_345])
def test_ticks_are_whole_steps(runs, last):
    norms = "step,activation/decoder.0,gradient/decoder.0\n" + "".join(
        f"{n * last // 2},{1 + n},{2 + n}\n" for n in (1, 2)
    )
    (runs[0] / "norms.csv").write_text(norms)
    (runs[0] / "metrics.csv").write_text(norms.replace("activation/decoder.0", "train/loss"))
    for picture in (plot_norms(runs[0]), plot_curves([runs[0]])):
        assert_ticks_are_exact(picture.figure, ["optimizer step"])


@pytest.mark.parametrize(
    ("act", "fault"),
    [
        (lambda a, b, c: plot_curves([]), "runs: must name one run's directory at least; got none."),
        (lambda a, b, c: plot_curves([a, "nowhere"]), "nowhere: is no run; it has no config.yaml."),
        (lambda a, b, c: plot_curves([c]), "has no figures yet; its metrics.csv has no row."),
        (
            lambda a, b, c: plot_curves([a, b], ["val/los"]),
            "metric: none of the runs has 'val/los'. Did you mean 'val/loss'? Known: train/loss, val/loss.",
        ),
        (
            lambda a, b, c: plot_norms(b),
            "has no norms.csv. Norms are noted on request: python train.py callbacks.norms.",
        ),
        (lambda a, b, c: plot_norms("nowhere"), "nowhere: is no run; it has no config.yaml."),
    ],
)
def test_what_is_wrong_is_said(runs, act, fault):
    with pytest.raises(ConfigError) as caught:
        act(*runs)
    assert fault in str(caught.value)
