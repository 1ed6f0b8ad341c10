"""callbacks.norms and callbacks.pictures: correct values, and no effect on the run."""

import csv
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from refusals import refused
from torch.autograd import DeviceType

from tasks.callbacks.norms import NormsLog
from tasks.callbacks.profile import Profile, short_table
from tasks.logging.loggers import Loggers
from tasks.logging.wandb_logger import WandbRunLogger
from tasks.modules.module import Task
from tasks.run.start import start_run
from tests.tasks.command_lines import output
from tests.train_processes import SMALL_DECODER
from xformer_kit import compose
from xformer_kit.api import load
from xformer_kit.config import config_hash
from xformer_kit.config.options.callbacks import Norms as Options
from xformer_kit.inspect.attention_plots import plot_bias, plot_mask
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import build_tiny_model, default_config

OBSERVED = (
    "callbacks.norms.every=5",
    "callbacks.pictures.every=8",
    "callbacks.pictures.of=[attention,mask,bias]",
    "callbacks.pictures.length=5",
    "callbacks.pictures.heads=[1]",
)
TINY = (
    *SMALL_DECODER,
    "data.batch_size=4",
    "trainer.max_steps=10",
    "trainer.log_every_n_steps=1",
    "trainer.val_every=5",
    "trainer.checkpoint_every=10",
    "schedule.warmup=2",
    "logger=none",
    "trainer.accelerator=cpu",
    "position=t5",
    "attn.dropout=0.1",
    "trainer.gradient_clip_val=0.01",
)
PNG = b"\x89PNG"


def table(path):
    return {int(row["step"]): row for row in csv.DictReader(path.read_text().splitlines())}


@pytest.fixture(scope="module")
def runs(text, tmp_path_factory):
    """Returns the directories of two runs, with and without the built-in callbacks."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        shared = [*TINY, f"data.path={text}"]
        for name, words in (("observed", OBSERVED), ("plain", ())):
            assert start_run(compose([*shared, *words]), folder / name) == 0
    return folder / "observed", folder / "plain"


@pytest.mark.extended
def test_built_in_callbacks_do_not_change_the_metrics(runs):
    observed, plain = runs
    assert (observed / "metrics.csv").read_text() == (plain / "metrics.csv").read_text()
    assert not (plain / "norms.csv").exists() and not (plain / "pictures").exists()


@pytest.mark.extended
def test_gradients_of_all_layers_are_the_gradient_of_the_step(runs):
    norms, metrics = table(runs[0] / "norms.csv"), table(runs[0] / "metrics.csv")
    assert list(norms) == [5, 10]
    for step, row in norms.items():
        layers = {name: float(value) for name, value in row.items() if name.startswith("gradient/")}
        assert {
            "gradient/embed",
            "gradient/decoder",
            "gradient/decoder.0",
            "gradient/decoder.1",
        } == set(layers)
        whole = math.sqrt(sum(value**2 for value in layers.values()))
        assert (
            whole == pytest.approx(float(metrics[step]["grad_norm"]), rel=1e-5) and whole > 0.01
        )  # before clipping


def test_activation_norms_are_of_real_tokens_after_each_layer(tmp_path, config):
    model, expected = build_tiny_model(tiny_config(norm="rms", layers=3)).train(), {}
    real = torch.tensor([[True] * 6, [True] * 2 + [False] * 4])
    norms_log = NormsLog(
        Options(every=1),
        None,
        tmp_path,
        lambda row, step: expected.update(logged=(row, step)),
        True,
    )

    task = Task(config(), model, None, total_steps=2)
    norms_log.on_train_start(None, task)
    for depth, block in enumerate(model.decoder.layers):
        block.register_forward_hook(
            lambda m, args, out, d=depth: expected.update({f"activation/decoder.{d}": out[0][0]})
        )
    model(torch.arange(12).view(2, 6), real=real)
    model.eval()(torch.arange(12).view(2, 6))  # a validation is not recorded
    task.step = 1
    model.train()(torch.arange(12).view(2, 6), real=real)  # another micro-batch
    norms_log.on_train_batch_end(SimpleNamespace(callback_metrics={}), task)
    row, step = expected["logged"]
    assert step == 1 and list(row) == [f"activation/decoder.{d}" for d in range(3)]
    for name, value in row.items():
        assert value == pytest.approx(expected[name][real].square().mean().sqrt().item(), rel=1e-5)
    norms_log.on_train_end(None, task)
    assert (
        not any(module._forward_pre_hooks for module in model.modules())
        and not task._gradient_hooks
    )


@pytest.mark.extended
def test_pictures_are_saved_in_the_runs_directory(runs):
    names = [f"{name}_{step:06d}.png" for name in ("attention", "bias") for step in (0, 8, 10)] + [
        "mask_000000.png"
    ]
    assert sorted(path.name for path in (runs[0] / "pictures").glob("*_*.png")) == names
    assert all((runs[0] / "pictures" / name).read_bytes().startswith(PNG) for name in names)
    model = load(runs[0], checkpoint="last")
    for name, drawn in (
        ("bias_000010.png", plot_bias(model, 5)),
        ("mask_000000.png", plot_mask(model, 5)),
    ):
        assert (runs[0] / "pictures" / name).read_bytes() == drawn.encoded("png")


def test_a_logger_gets_the_picture(tmp_path, monkeypatch):
    wandb, found = pytest.importorskip("wandb"), []
    monkeypatch.setattr(wandb, "Image", lambda path: ("image", path))

    class Logger:
        class experiment:  # noqa: N801
            log = found.append

    Loggers({"wandb": WandbRunLogger(Logger(), tmp_path)}).picture(
        "pictures/mask", tmp_path / "mask.png", 7
    )
    assert found == [{"pictures/mask": ("image", str(tmp_path / "mask.png")), "step": 7}]


def test_only_callbacks_that_change_a_run_are_in_its_config_hash():
    config = default_config()
    assert config_hash(config | {"callbacks": {"norms": {"every": 5}}}) == config_hash(config)
    assert config_hash(config | {"callbacks": {"mine": {"every": 5}}}) != config_hash(config)


def test_invalid_options_have_one_message_each():
    faults = {
        "callbacks.norms.every=0": "callbacks.norms.every: must be at least 1 step; got 0.",
        "callbacks.pictures.evry=3": (
            "callbacks.pictures.evry: callback 'pictures' has no option 'evry'. Did you mean"
            " 'every'?"
        ),
        "callbacks.pictures.of=[]": "callbacks.pictures.of: must not be empty; got [].",
        "callbacks.pictures.layers=[-1]": (
            "callbacks.pictures.layers: must be counted from 0 on; got [-1]. Try [0]."
        ),
        "callbacks.norm={}": "callbacks.norm: no callback is called 'norm'. Did you mean 'norms'?",
    }
    found = refused([*faults])
    for fault in faults.values():
        assert [sentence for sentence in found if sentence.startswith(fault)], (fault, found)
    assert len(found) == len(faults)


# xformer plot


@pytest.mark.extended
@pytest.mark.parametrize(
    ("words", "file"),
    [
        (
            ["attention", "{run}", "--text", "the cat", "--layers", "1", "--heads", "0,1"],
            "{run}/pictures/attention.png",
        ),
        (["bias", "{run}", "--length", "9"], "{run}/pictures/bias.png"),
        (["norms", "{run}"], "{run}/pictures/norms.png"),
        (
            [
                "curves",
                "{run}",
                "{plain}",
                "--metric",
                "val/loss,lr",
                "--save",
                "{here}/curves.svg",
            ],
            "{here}/curves.svg",
        ),
        (["mask", "{run}", "--save", "{here}/mask.pdf"], "{here}/mask.pdf"),
        (
            [
                "mask",
                "mask=sliding_window",
                "mask.window=3",
                "--length",
                "7",
                "--save",
                "{here}/m.png",
            ],
            "{here}/m.png",
        ),
    ],
)
def test_a_picture_is_drawn(runs, tmp_path, capsys, words, file):
    places = {"run": runs[0], "plain": runs[1], "here": tmp_path}
    file = file.format(**places)
    code, out, err = output(capsys, "plot", *(word.format(**places) for word in words))
    assert (code, out, err) == (0, f"{file}\n", "")
    kinds = {"png": PNG, "svg": b"<?xml", "pdf": b"%PDF"}
    assert Path(file).read_bytes().startswith(kinds[file.rpartition(".")[2]])


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "plot: needs a kind of picture. Known: mask, bias, attention, curves, norms."),
        (["msk"], "plot: needs a kind of picture; got msk. Did you mean 'mask'?"),
        (["mask", "--heads", "1"], "--heads: belongs to attention; got plot mask. Leave it out."),
        (["mask", "--length", "0"], "--length: must be at least 1; got 0."),
        (
            ["mask", "nowhere", "attn.heads=2"],
            "plot mask: takes overrides or one run's directory; got nowhere attn.heads=2.",
        ),
        (
            ["mask", "--save", "mask.jpg"],
            "--save: must end in one of .png, .svg, .pdf; got '.jpg'.",
        ),
        (
            ["bias", "position=rotary"],
            "position: none of the model's adds a bias to scores. Those that do: alibi, ",
        ),
        (["attention", "{run}"], "--text: must hold one token at least; got none."),
        (["attention", "--text", "x"], "plot attention: takes one run's directory; got none."),
        (
            ["attention", "{run}", "--text", "x", "--heads", "a"],
            "--heads: must be numbers from 0 on, with commas",
        ),
        (
            ["attention", "{run}", "--text", "x", "--heads", "7"],
            "heads: decoder.0.attn has heads 0 to 1; got 7.",
        ),
        (
            ["attention", "{run}", "--text", "x", "--target", "y"],
            "--target: is of a run with sources and targets;",
        ),
        (["norms", "{plain}"], "{plain}: has no row in norms.csv. A row each 50 steps"),
        (["curves", "a=b"], "plot curves: takes directories of runs; got a=b."),
    ],
)
def test_invalid_plot_arguments_have_one_message(runs, capsys, words, fault):
    places = {"run": runs[0], "plain": runs[1]}
    before = sorted(path for path in runs[0].rglob("*"))
    code, out, err = output(capsys, "plot", *(word.format(**places) for word in words))
    assert code == 2 and not out and err.startswith(fault.format(**places)) and err.count("\n") == 1
    assert sorted(path for path in runs[0].rglob("*")) == before


def test_without_matplotlib_the_fault_names_it(capsys, monkeypatch):
    monkeypatch.setattr("xformer_kit.inspect.style.find_spec", lambda name: None)
    code, out, err = output(capsys, "plot", "mask")
    assert (code, out) == (2, "")
    assert (
        err
        == 'plot: needs the package matplotlib; got none. Use pip install "xformer_kit[study]".\n'
    )


@pytest.mark.parametrize(("total", "first"), [(20, 5), (6, 5), (5, 2), (1, 0)])
def test_a_trace_starts_after_the_first_steps_or_in_the_middle_of_a_short_run(
    tmp_path, total, first
):
    trace = Profile(tmp_path, steps=2)
    trace.on_train_start(None, SimpleNamespace(total_steps=total, step=0))
    action = torch.profiler.ProfilerAction
    plan = [trace.profiler.schedule(step) for step in range(30)]
    trace.on_train_end(None, None)
    recorded = [action.RECORD, action.RECORD_AND_SAVE]
    assert plan == [action.NONE] * (first - 1) + [action.WARMUP] * (first > 0) + recorded + [
        action.NONE
    ] * (28 - first)


def test_the_table_of_a_profile_has_the_largest_self_times_first():
    """Kernels of a GPU do not count, since the operations that start them do."""
    events = [
        SimpleNamespace(key=key, count=count, self_cpu_time_total=us, device_type=device)
        for key, count, us, device in (
            ("aten::add", 3, 1_000.0, DeviceType.CPU),
            ("aten::mm", 1_200, 2_500.0, DeviceType.CPU),
            ("ProfilerStep*", 2, 500.0, DeviceType.CPU),
            ("gemm_kernel", 9, 9_000.0, DeviceType.CUDA),
        )
    ]
    table = short_table(events, "self_cpu_time_total")
    assert [re.split(r" {2,}", line) for line in table.split("\n")] == [
        ["operation", "calls", "self ms", "share"],
        ["aten::mm", "1,200", "2.5", "62.5%"],
        ["aten::add", "3", "1.0", "25.0%"],
        ["between operations", "2", "0.5", "12.5%"],
    ]


def test_the_table_of_a_profile_is_ten_lines_of_names_that_differ():
    names = [f"aten::{'long_' * 12}{end}" for end in ("forward", "backward")] * 10
    events = [
        SimpleNamespace(key=key, count=1, self_cpu_time_total=1.0, device_type=DeviceType.CPU)
        for key in names
    ]
    lines = short_table(events, "self_cpu_time_total").split("\n")[1:]
    assert len(lines) == 10 and max(map(len, lines)) <= 80
    assert len({line.split()[0] for line in lines}) == 2
