"""xformer sweep export: the file for W&B, and the command lines of its agents."""

import math
import random
from pathlib import Path

import pytest
import yaml
from wandb.apis.public.sweeps import _validate_config_and_fill_distribution
from wandb.sdk.launch.sweeps.utils import create_sweep_command_args, load_sweep_config

from tasks.cli import main
from tasks.cli.wandb_sweep import NAME, combinations, export_sweep
from tests.tasks.command_lines import fault
from xformer_kit.config import compose, preflight
from xformer_kit.config.line.composition import choices
from xformer_kit.study.plan import variants
from xformer_kit.study.study_node import complete

ROOT = Path(__file__).resolve().parents[3]
LOG = "optim.lr=tag(log,interval(1e-4,1e-2))"


def agent_arguments(config, values):
    """Returns the arguments of `xformer train` for proposed values, as W&B writes them."""
    args = create_sweep_command_args(
        {"args": {key: {"value": value} for key, value in values.items()}}
    )
    start = config["command"].index("train") + 1
    assert config["command"][-1] == "${args_no_hyphens}"
    return [*config["command"][start:-1], *args["args_no_hyphens"]]


def draw(parameter, random_):
    """Returns a random value of a parameter, by W&B's rules."""
    if "values" in parameter:
        return random_.choice(parameter["values"])
    low, high = parameter["min"], parameter["max"]
    return {
        "uniform": lambda: random_.uniform(low, high),
        "int_uniform": lambda: random_.randint(low, high),
        "log_uniform_values": lambda: math.exp(random_.uniform(math.log(low), math.log(high))),
        "q_log_uniform_values": lambda: round(
            math.exp(random_.uniform(math.log(low), math.log(high)))
        ),
    }[parameter["distribution"]]()


def test_overrides_with_several_values_become_parameters(capsys):
    words = ["attn.heads=range(2,5,2)", "model.dim=64", LOG, "schedule.warmup=int(interval(0,9))"]
    assert main(["sweep", "export", *words, "--metric", "val/bits_per_byte"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == {
        "program": "xformer_kit",
        "command": [
            *("${env}", "${interpreter}", "-m", "${program}", "train"),
            *("model.dim=64", "${args_no_hyphens}"),
        ],
        "method": "bayes",
        "metric": {"name": "val/bits_per_byte", "goal": "minimize"},
        "parameters": {
            "attn.heads": {"values": [2, 4]},
            "optim.lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-2},
            "schedule.warmup": {"distribution": "int_uniform", "min": 0, "max": 9},
        },
    }


def test_the_command_of_an_agent_has_the_proposed_values(tmp_path, capsys):
    words = [
        "attn.kv_heads=null,1",
        "ffn.bias=true,false",
        "model.dim=64",
        "mask=causal,{name: sliding_window, window: 4}",
    ]
    file = tmp_path / "sweep.yaml"
    assert main(["sweep", "export", *words, "--out", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: wandb sweep {file}\n"
    config = load_sweep_config(str(file))
    assert (config["method"], config["metric"]["goal"]) == ("grid", "minimize")
    last = {key: p["values"][-1] for key, p in config["parameters"].items()}
    found = compose(agent_arguments(config, last), data=False)
    assert (found["attn"]["kv_heads"], found["ffn"]["bias"]) == (1, False)
    assert (found["mask"]["name"], found["mask"]["window"]) == ("sliding_window", 4)
    first = {key: p["values"][0] for key, p in config["parameters"].items()}
    found = compose(agent_arguments(config, first), data=False)
    assert (found["attn"]["kv_heads"], found["ffn"]["bias"], found["mask"]["name"]) == (
        None,
        True,
        "causal",
    )


@pytest.mark.extended
def test_a_study_of_one_factor_trains_the_same_models(capsys):
    words = ["study=norm_placement", "study.seeds=2", "model.dim=64"]
    assert main(["sweep", "export", *words]) == 0
    out = capsys.readouterr()
    assert out.err == "W&B does not do what these set: study.budget.\n"
    config = yaml.safe_load(out.out)
    assert config["name"] == "norm_placement"
    assert config["parameters"]["seed"] == {"values": [0, 1]}
    line = preflight(words)
    wanted = {
        v.levels["placement"]: v.config for v in variants(complete(line.study, "x"), line.compose)
    }
    assert list(wanted) == config["parameters"]["placement"]["values"]
    for level, model in wanted.items():
        assert compose(
            agent_arguments(config, {"placement": level, "seed": 1}), data=False
        ) == model | {"seed": 1}


@pytest.mark.extended
def test_notes_name_what_a_sweep_leaves_out_of_a_study():
    words = [
        "study=norm_placement",
        "study.factors={placement: [post], norm: [rms]}",
        "study.budget={match: none, by: null}",
        "study.baseline={placement: pre, norm: layer}",
    ]
    assert export_sweep(words).notes == ["The sweep tries all 4 combinations; the study 3 of them."]
    found = export_sweep([*words, "study.design=factorial"], "random")
    assert "seed" not in found.config["parameters"]
    assert found.config["parameters"]["norm"] == {"values": ["layer", "rms"]}
    assert not [
        word for word in found.config["command"] if word.startswith(("norm", "placement", "seed"))
    ]
    assert found.notes == ["W&B does not do what these set: study.seeds."]


def test_wandb_adds_nothing_to_the_example():
    """Every interval names its distribution."""
    for file in (ROOT / "conf" / "sweep").glob("*.yaml"):
        config = load_sweep_config(str(file))
        assert _validate_config_and_fill_distribution(config) == config
        assert all(NAME.fullmatch(key) for key in config["parameters"])


def test_all_proposals_of_the_example_are_valid():
    config = load_sweep_config(str(ROOT / "conf" / "sweep" / "bayes.yaml"))
    random_ = random.Random(0)
    drawn = [{key: draw(p, random_) for key, p in config["parameters"].items()} for _ in range(5)]
    for values in drawn:
        found = compose(agent_arguments(config, values), data=False)
        assert found["optim"]["lr"] == pytest.approx(values["optim.lr"])
        assert found["ffn"]["name"] == values["ffn"]
    assert found["logger"]["name"] == "wandb"
    assert "sweep" not in choices()


def test_a_sample_of_many_combinations_has_every_value():
    parameters = {
        "a": {"values": list(range(9))},
        "b": {"values": list(range(9))},
        "c": {"min": 0.5, "max": 1.5},
    }
    sample = list(combinations(parameters, limit=20))
    assert len(sample) == 20
    assert {word for words in sample for word in words} >= {
        f"{key}={i}" for key in "ab" for i in range(9)
    } | {
        "c=0.5",
        "c=1.5",
    }
    assert len(list(combinations(parameters, limit=162))) == 162


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["attn.heads=2"],
            "sweep: needs something to vary; got attn.heads=2. Try attn.heads=2,4,8 or ",
        ),
        (["attn.heads=2,7"], "attn.heads: must divide model.dim; got 7 and 128."),
        (["attn.heads=interval(1,3)"], "attn.heads: must divide model.dim; got 3 and 128."),
        (["attn.heads=interval(1,2.5)"], "attn.heads: must be a whole number; got 2.5."),
        (
            ["attn.heads=2,4", "logger=none"],
            (
                "logger: a W&B sweep needs the values that runs log to W&B; got none. Take"
                " logger=wandb."
            ),
        ),
        (
            [LOG, "--method", "grid"],
            "--method: grid tries all values, and optim.lr has an interval of them.",
        ),
        (
            ["optim.lr=tag(log,interval(0.0,1.0))"],
            "optim.lr.low: must be above 0; got 0.0. Raise it, or leave log out.",
        ),
        (
            ["optim.lr=interval(1.0,0.1)"],
            "optim.lr.high: must be above low; got low 1.0 and high 0.1.",
        ),
        (
            ["attn.heads=2,4", "--metric", "val/lss"],
            "--metric: it is not known whether 'val/lss' is better higher or lower.",
        ),
        (["hydra/launcher=basic,joblib"], "hydra/launcher: is no name of a W&B parameter,"),
        (["attn=glob(*)"], "attn: must list its values; got attn=glob(*)."),
        (
            ["study=norm_placment"],
            "study: no choice is called 'norm_placment'. Did you mean 'norm_placement'?",
        ),
        (
            [
                "study=norm_placement",
                "study.factors={size: {big: {model.dim: 64, model.layers: 2}}}",
                "study.baseline={size: {model.layers: 1}}",
            ],
            "study.factors.size: W&B varies each key by itself, and the level ",
        ),
        (
            ["attn.heads=2,4", "--out", "no/where/s.yaml"],
            "--out: must be a file that can be written; got no/where/s.yaml.",
        ),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_invalid_input_has_one_message(capsys, words, answer):
    assert fault(capsys, "sweep", "export", *words).startswith(answer)


def test_an_unknown_action_is_refused_and_a_logarithmic_integer_interval_is_exported(capsys):
    assert main(["sweep", "exprt"]) == 2
    assert capsys.readouterr().err == "sweep: there is no 'exprt'. Known: export.\n"
    assert export_sweep(["attn.heads=tag(log,int(interval(1,8)))"]).config["parameters"][
        "attn.heads"
    ] == {
        "distribution": "q_log_uniform_values",
        "q": 1,
        "min": 1,
        "max": 8,
    }


def test_an_interval_of_an_integer_option_has_integers():
    config = export_sweep(["attn.heads=interval(1,2)"]).config
    assert config["parameters"]["attn.heads"] == {
        "distribution": "int_uniform",
        "min": 1,
        "max": 2,
    }
