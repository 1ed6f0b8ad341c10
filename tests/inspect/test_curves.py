"""Plotted learning curves and norms are the values in the files of the runs."""

import itertools

import pytest
from drawings import assert_ticks_are_exact

from tasks.cli import main
from xformer_kit.config import config_yaml
from xformer_kit.inspect import plot_curves, plot_norms
from xformer_kit.laws.tiny_composition import default_config
from xformer_kit.registry import ConfigError


@pytest.fixture
def runs(tmp_path):
    """A run for each seed: two of them, the second with one row that is not written to its end."""

    def write(name, metrics=None, norms=None, **changes):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.yaml").write_text(config_yaml(default_config() | changes))
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
    return {
        line.get_label(): (line.get_xdata().tolist(), line.get_ydata().tolist())
        for line in axes.lines
    }


def test_curves_are_those_of_the_files(runs):
    train, val = plot_curves(runs[:2]).figure.axes
    assert (train.get_ylabel(), val.get_ylabel()) == ("train/loss", "val/loss")
    assert lines(val) == {"seed=0": ([20, 40], [2.75, 2.5]), "seed=1": ([20, 40], [2.85, 2.5])}
    assert lines(train)["seed=1"] == ([10, 20, 30, 40], [3.0, 2.5, 2.25, 2.0])
    (single,) = plot_curves([runs[0]], ["train/loss"]).figure.axes
    assert single.get_ylabel() == "train/loss" and len(single.lines) == 1


def test_train_and_validation_of_one_run_share_an_axis(runs):
    (axes,) = plot_curves(runs[:1]).figure.axes
    assert (axes.get_ylabel(), axes.get_title()) == ("loss", "a")
    assert lines(axes) == {
        "train/loss": ([10, 20, 30, 40], [3.0, 2.5, 2.25, 2.0]),
        "val/loss": ([20, 40], [2.75, 2.5]),
    }


def in_legend(picture):
    return [text.get_text() for legend in picture.figure.legends for text in legend.get_texts()]


def note(picture):
    return " ".join(" ".join(text.get_text() for text in picture.figure.texts).split())


def test_a_run_that_ended_early_is_inside_the_axes(runs):
    """The third run has no values: a note names it, and the legend has the other two."""
    rows = "".join(f"{step},{2 + 100 / step}\n" for step in range(1, 1001))
    (runs[0] / "metrics.csv").write_text(f"step,val/loss\n{rows}")
    (runs[1] / "metrics.csv").write_text("step,val/loss\n30,8.0\n60,7.0\n")
    picture = plot_curves(runs)
    (axes,) = picture.figure.axes
    (low, high), (left, right) = axes.get_ylim(), axes.get_xlim()
    for line in axes.lines:
        steps, values = line.get_data()
        assert left <= steps[0] and steps[-1] <= right and low <= values[-1] <= values[-2] <= high
    assert high < 102  # the first of a thousand steps is above it
    names = in_legend(picture)
    assert len(names) == 2 and set(names) == set(lines(axes))
    assert note(picture) == "Runs with no row yet: c"
    picture.figure.draw_without_rendering()
    components = (*picture.figure.texts, *picture.figure.legends, axes.xaxis.label)
    every = sorted(
        (component.get_window_extent() for component in components), key=lambda box: box.y0
    )
    assert all(lower.y1 <= upper.y0 for lower, upper in itertools.pairwise(every))


def test_a_run_whose_only_figure_is_not_finite_is_in_the_note(runs):
    (runs[1] / "metrics.csv").write_text("step,train/loss\n10,nan\n")
    picture = plot_curves(runs[:2])
    assert picture.figure.axes[0].get_title() == "seed=0" and in_legend(picture) == []
    assert note(picture) == "Runs with no finite value of train/loss or val/loss: seed=1"
    single = plot_curves(runs[1:2])
    assert not single.figure.axes[0].lines and note(single).startswith("Runs with no finite value")


def test_the_command_prints_the_note_next_to_the_path(runs, capsys, tmp_path):
    file = tmp_path / "curves.png"
    assert main(["plot", "curves", *map(str, runs), "--save", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{file}\n"
    assert " ".join(err.split()) == "Runs with no row yet: c"  # without the folder of all runs


def test_many_records_of_a_loss_in_training_are_averaged(runs):
    rows = "".join(f"{step},{step}\n" for step in range(1, 121))
    (runs[0] / "metrics.csv").write_text(f"step,train/loss\n{rows}")
    (axes,) = plot_curves([runs[0]]).figure.axes
    ((steps, values),) = lines(axes).values()
    assert steps == list(range(2, 121, 2)) and values[:2] == [1.5, 3.5]


def test_the_last_records_are_shown_also_if_they_are_fewer_than_an_average_needs(runs):
    rows = "".join(f"{step},{step}\n" for step in range(1, 122))
    (runs[0] / "metrics.csv").write_text(f"step,train/loss\n{rows}")
    (axes,) = plot_curves([runs[0]]).figure.axes
    ((steps, values),) = lines(axes).values()
    assert steps == [*range(3, 121, 3), 121] and values[-2:] == [119, 121]


def test_norms_are_those_of_the_file(runs):
    activation, gradient = plot_norms(runs[0]).figure.axes
    assert lines(activation) == {
        "decoder.0": ([5, 10], [1.0, 1.5]),
        "decoder.1": ([5, 10], [2.0, 2.5]),
    }
    assert lines(gradient) == {"decoder.0": ([5, 10], [0.5, 0.25]), "embed": ([5, 10], [3.0, 2.0])}


@pytest.mark.parametrize("top", [2.0, 4.0, 20.0, 400.0])
def test_norms_of_few_powers_of_ten_have_several_labels(runs, top):
    (runs[0] / "norms.csv").write_text(f"step,gradient/decoder.0\n5,{top}\n10,0.3\n")
    (axes,) = plot_norms(runs[0]).figure.axes
    axes.figure.draw_without_rendering()
    (low, high), ticks = (
        axes.get_ylim(),
        (*axes.yaxis.get_major_ticks(), *axes.yaxis.get_minor_ticks()),
    )
    assert (
        sum(low <= tick.get_loc() <= high and tick.label1.get_text() != "" for tick in ticks) >= 3
    )


def test_norms_without_a_row_are_refused_with_the_interval(runs):
    (runs[0] / "norms.csv").write_text("step,gradient/decoder.0\n")
    with pytest.raises(ConfigError, match=r"has no row in norms\.csv\. .*norms\.every=50"):
        plot_norms(runs[0])


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
    ("plot", "fault"),
    [
        (lambda a, b, c: plot_curves([a, "nowhere"]), "nowhere: is no run; it has no config.yaml."),
        (lambda a, b, c: plot_curves([c]), "has no figures yet; its metrics.csv has no row."),
        (
            lambda a, b, c: plot_curves([a, b], ["val/los"]),
            (
                "metric: none of the runs has 'val/los'. Did you mean 'val/loss'? Known:"
                " train/loss, val/loss."
            ),
        ),
        (
            lambda a, b, c: plot_norms(b),
            "has no row in norms.csv. A row each 50 steps is recorded on request: python train.py",
        ),
        (lambda a, b, c: plot_norms("nowhere"), "nowhere: is no run; it has no config.yaml."),
    ],
)
def test_faults(runs, plot, fault):
    with pytest.raises(ConfigError) as caught:
        plot(*runs)
    assert fault in str(caught.value)


@pytest.mark.parametrize("step", ["²", "x", "1.5", "-3", "9" * 30])
def test_a_step_that_is_no_number_is_refused_with_its_row(runs, step):
    path = runs[1] / "metrics.csv"
    path.write_text(path.read_text().replace("\n20,", f"\n{step},"), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        plot_curves(runs[:2])
    assert (
        str(error.value)
        == f"{path}, row 3: the step must be a whole number of at most 18 digits; got {step!r}. "
        "Bring a copy of it back, or remove it."
    )


def test_a_diverged_run_is_named_with_its_step_and_the_others_can_be_read(runs):
    good, diverged = runs[:2]
    (diverged / "metrics.csv").write_text("step,val/loss\n10,3.0\n20,2.5\n30,2e6\n40,3e6\n")
    picture = plot_curves([good, diverged], ["val/loss"])
    assert note(picture) == "val/loss diverged: seed=1 (step 30)"
    assert picture.figure.axes[0].get_ylim()[1] < 4
    (diverged / "metrics.csv").write_text("step,val/loss\n10,3.0\n20,2.5\n30,nan\n")
    picture = plot_curves([good, diverged], ["val/loss"])
    assert note(picture) == "val/loss diverged: seed=1 (step 30)"
    (diverged / "metrics.csv").write_text("step,val/accuracy\n10,0.01\n20,0.02\n30,0.9\n")
    picture = plot_curves([diverged], ["val/accuracy"])
    assert picture.figure.axes[0].get_ylim()[1] > 0.9 and not note(picture)


def test_runs_of_other_data_are_noted_if_their_labels_do_not_tell(runs):
    """The data that the runs recorded: those of today are not read."""
    for run, fingerprint in zip(runs[:2], "ab", strict=True):
        (run / "summary.json").write_text(f'{{"data_fingerprint": "{fingerprint}"}}')
    assert note(plot_curves(runs[:2])) == "Not all of these runs read the same data."
    assert note(plot_curves(runs[:1])) == ""
    (runs[1] / "summary.json").write_text('{"data_fingerprint": "a"}')
    assert note(plot_curves(runs[:2])) == ""
    (runs[1] / "config.yaml").write_text(
        config_yaml(default_config() | {"tokenizer": {"name": "byte"}})
    )
    (runs[1] / "summary.json").write_text('{"data_fingerprint": "b"}')
    assert note(plot_curves(runs[:2])) == ""
