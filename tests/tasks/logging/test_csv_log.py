import logging

from tasks.logging.csv_log import CsvLog
from xformer_kit.files.saved_files import read_columns, read_table


def lines(path) -> list[str]:
    return path.read_text().splitlines()


def test_rows_after_the_checkpoint_are_removed(tmp_path):
    path = tmp_path / "metrics.csv"
    records = CsvLog(path, ("step", "loss")).open(0)
    for step in range(1, 6):
        records.add({"step": step, "loss": step / 3} | ({"late": 1} if step > 3 else {}))
    CsvLog(path, ("step", "loss")).open(3)
    assert lines(path) == ["step,loss", "1,0.333333333", "2,0.666666667", "3,1"]


def test_an_incomplete_last_row_is_removed(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,0.5\n2,0.2")
    CsvLog(path, ("step", "loss")).open(9)
    assert lines(path) == ["step,loss", "1,0.5"]


def test_a_column_that_appears_later_is_added_at_the_end(tmp_path):
    records = CsvLog(tmp_path / "m.csv", ("step", "loss")).open(0)
    records.add({"step": 1, "loss": 0.5})
    records.add({"step": 2, "val/loss": float("nan")})
    assert lines(records.path) == ["step,loss,val/loss", "1,0.5,", "2,,nan"]
    assert read_table(records.path)[0] == ["step", "loss", "val/loss"]


def test_fp32_values_are_read_back_exactly(tmp_path):
    import numpy as np

    records = CsvLog(tmp_path / "m.csv", ("step", "x")).open(0)
    values = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    for step, value in enumerate(values):
        records.add({"step": step, "x": float(value)})
    assert [np.float32(x) for x in read_columns(records.path)["x"][1]] == list(values)


def test_missing_or_changed_rows_are_reported_when_the_run_is_resumed(tmp_path, caplog):
    path = tmp_path / "metrics.csv"

    def warning_after(change) -> str:
        records = CsvLog(path, ("step", "loss")).open(0)
        for step in range(1, 6):
            records.add({"step": step, "loss": step / 4})
        fingerprint = records.fingerprint()
        records.add({"step": 6, "loss": 0.0, "late": 1.0})  # a later column is no change
        change()
        caplog.clear()
        logging.getLogger("xformer").propagate = True
        CsvLog(path, ("step", "loss")).open(5, fingerprint)
        path.unlink()
        return caplog.text

    def keep(count: int) -> None:
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:count]))

    assert warning_after(lambda: None) == ""
    message = f"{path}: rows up to the checkpoint are missing or were changed."
    for change in (
        lambda: keep(3),
        lambda: keep(5),
        path.unlink,
        lambda: path.write_text(""),
        lambda: path.write_bytes(bytes(range(256)) * 9),
    ):
        assert message in warning_after(change)
    for old, new in (("0.75", "0.5"), ("\n4,", "\n3,"), ("\n4,", "\n4,1.0,\n4,")):
        assert message in warning_after(
            lambda o=old, n=new: path.write_text(path.read_text().replace(o, n))
        )


def test_a_step_is_a_number_in_ascii_digits(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n1,0.5\n²,0.5\n" + "9" * 5000 + ",0.5\n", encoding="utf-8")
    assert [row[0] for row in read_table(path)[1]] == ["1"]
    CsvLog(path, ("step", "loss")).open(9)
    assert lines(path) == ["step,loss", "1,0.5"]
