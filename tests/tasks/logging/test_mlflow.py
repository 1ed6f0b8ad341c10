"""The logger mlflow, with a local store."""

import pytest

from tasks.logging.loggers import create_loggers
from xformer_kit.files.saved_files import read_columns

pytest.importorskip("mlflow")


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """runs() is the client and all runs of a store of files, which is created at once."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri := f"file:{tmp_path / 'store'}")

    def runs():
        from mlflow.tracking import MlflowClient

        client = MlflowClient(uri)
        (experiment,) = (one for one in client.search_experiments() if one.name == "xformer_kit")
        return client, client.search_runs([experiment.experiment_id])

    return runs


def points(client, run, name):
    """[(step, value)] of a metric."""
    history = client.get_metric_history(run.info.run_id, name)
    return [(one.step, one.value) for one in history]


@pytest.mark.extended
def test_a_run_has_the_names_and_values_of_metrics_csv(begin, runs):
    code, folder = begin("run", "logger=mlflow", "callbacks.norms={every: 10}")
    client, (run,) = runs()
    assert (code, run.info.status, run.info.run_name) == (0, "FINISHED", "decoder/run")
    metrics = read_columns(folder / "metrics.csv") | read_columns(folder / "norms.csv")
    assert "activation/decoder.0" in metrics
    assert "val/loss" in metrics
    for name, (steps, values) in metrics.items():
        expected = [(step, pytest.approx(value)) for step, value in zip(steps, values, strict=True)]
        assert points(client, run, name) == expected, name
    for name in run.data.metrics:
        steps = [step for step, _ in points(client, run, name)]
        assert len(steps) == len({*steps}), name
    assert run.data.metrics["params"] > 0
    assert run.data.params["model.dim"] == "16"
    assert run.data.params["ema.decay"] == "null"
    artifacts = client.list_artifacts(run.info.run_id)
    assert [one.path for one in artifacts] == ["samples.csv"]


def test_a_resumed_run_continues_its_run(config, runs, tmp_path):
    for step, code in ((1, 130), (2, 0)):
        loggers, messages = create_loggers(config("logger=mlflow", "logger.run_name=a"), tmp_path)
        assert messages == [f"MLflow: experiment xformer_kit in file:{tmp_path / 'store'}"]
        loggers({"loss": float(step)}, step)
        loggers.finish({}, code)
    client, (run,) = runs()
    assert (run.info.status, run.info.run_name) == ("FINISHED", "a")
    assert points(client, run, "loss") == [(1, 1.0), (2, 2.0)]


def test_a_password_is_not_printed(config, runs, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@localhost:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    loggers, (message,) = create_loggers(config("logger=mlflow"), tmp_path)
    assert "mlflow" not in loggers.loggers
    assert message.startswith("The logger mlflow cannot start (MlflowException: ")
    assert message.endswith("; the csv files are written.")
    assert "secret" not in message
