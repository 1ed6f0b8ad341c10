from tasks.records import Records, read


def lines(path) -> list[str]:
    return path.read_text().splitlines()


def test_rows_after_the_checkpoint_are_cut(tmp_path):
    path = tmp_path / "metrics.csv"
    records = Records(path, ("step", "loss")).open(0)
    for step in range(1, 6):
        records.add({"step": step, "loss": step / 3})
    Records(path, ("step", "loss")).open(3)
    assert lines(path) == ["step,loss", "1,0.333333333", "2,0.666666667", "3,1"]


def test_a_row_that_was_cut_off_while_it_was_written_is_dropped(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,0.5\n2,0.2")
    Records(path, ("step", "loss")).open(9)
    assert lines(path) == ["step,loss", "1,0.5"]


def test_a_column_that_appears_later_is_added_at_the_end(tmp_path):
    records = Records(tmp_path / "m.csv", ("step", "loss")).open(0)
    records.add({"step": 1, "loss": 0.5})
    records.add({"step": 2, "val/loss": float("nan")})
    assert lines(records.path) == ["step,loss,val/loss", "1,0.5,", "2,,nan"]
    assert read(records.path)[0] == ["step", "loss", "val/loss"]


def test_numbers_come_back_as_the_fp32_values_that_they_were(tmp_path):
    import numpy as np

    records = Records(tmp_path / "m.csv", ("step", "x")).open(0)
    values = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    for step, value in enumerate(values):
        records.add({"step": step, "x": float(value)})
    assert [np.float32(row["x"]) for row in read(records.path)[1]] == list(values)
