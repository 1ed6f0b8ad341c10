"""The event files of the logger tensorboard."""

import pytest

from xformer_kit.files.saved_files import read_columns

pytest.importorskip("tensorboard")


def events(folder):
    """The content of the event files of a run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return found


def hyper_parameters(found):
    """The config paths -> values of the tab HPARAMS, and the tags of its metrics."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    def content(name):
        data = HParamsPluginData()
        data.ParseFromString(found.SummaryMetadata(f"_hparams_/{name}").plugin_data.content)
        return data

    values = content("session_start_info").session_start_info.hparams
    metrics = content("experiment").experiment.metric_infos
    plain = {name: getattr(value, value.WhichOneof("kind")) for name, value in values.items()}
    return plain, {metric.name.tag for metric in metrics}


def test_a_finished_run_has_its_config_and_final_metrics_as_hyper_parameters(begin):
    code, folder = begin("run", "logger=tensorboard", "trainer.max_steps=2")
    assert code == 0
    found = events(folder)
    values, metrics = hyper_parameters(found)
    expected = {
        "model.dim": 16,
        "attn.name": "multi_head",
        "ema.decay": "null",
        "attn.bias": "false",
    }
    assert {path: values[path] for path in expected} == expected
    assert {"val/loss", "val/perplexity"} <= metrics <= set(found.Tags()["scalars"])
    (step,), (loss,) = read_columns(folder / "metrics.csv")["val/loss"]
    last = found.Scalars("val/loss")[-1]
    assert (last.step, last.value) == (step, pytest.approx(loss))


def test_a_run_that_fails_has_no_hyper_parameters(config, tmp_path):
    from tasks.logging.loggers import create_loggers

    loggers, _ = create_loggers(config("logger=tensorboard"), tmp_path)
    loggers({"loss": 1.0}, 3)
    loggers.finish({}, 1)
    found = events(tmp_path)
    assert [(one.step, one.value) for one in found.Scalars("loss")] == [(3, 1.0)]
    with pytest.raises(KeyError):
        hyper_parameters(found)
