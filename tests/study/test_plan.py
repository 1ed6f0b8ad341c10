"""Variants are composed and checked; budgets are met by a knob; a run's key is what decides its
result.
"""

import json
import sys
import types

import pytest
import torch

from tasks.study.resolve import Costs, resolve
from tests.forked_train import without_repeated_keys
from xformer_kit.config import compose, preflight
from xformer_kit.model.build import build_model
from xformer_kit.registry import ConfigError
from xformer_kit.study.budget import match_budget, with_knob
from xformer_kit.study.plan import variants
from xformer_kit.study.run_key import component_modules, run_key
from xformer_kit.study.study_node import complete

pytestmark = pytest.mark.extended

SMALL = [
    "data=copy",
    "experiment=copy",
    "model.dim=16",
    "model.layers=2",
    "attn.heads=2",
    "trainer.max_steps=3",
    "logger=none",
]


def asked(*words: str, **node):
    """A study's line with another node laid over."""
    line = preflight(["study=norm_placement", *without_repeated_keys([*SMALL, *words])])
    other = {"claim": None} if "factors" in node else {}  # which is about other variants
    line.study = complete(line.study | other | node, "here")
    return line


def planned(*words: str, **node):
    line = asked(*words, **node)
    return resolve(line.study, line.compose, list(line.argv))


def test_the_example_study():
    plan = planned(seeds=2, budget={"match": "params"})
    assert [v.label for v in plan.variants] == [
        "baseline",
        "placement=post",
        "placement=sandwich",
        "placement=output",
    ]
    assert [(run.seed, run.variant.label) for run in plan.runs][:5] == [
        (0, "baseline"),
        (0, "placement=post"),
        (0, "placement=sandwich"),
        (0, "placement=output"),
        (1, "baseline"),
    ]
    assert len({run.key for run in plan.runs}) == 8
    target = plan.variants[0].cost["params"]
    for variant in plan.variants:
        assert (
            variant.cost["params"] / target - 1 == pytest.approx(variant.off)
            and abs(variant.off) <= 0.01
        )
        assert "study" not in variant.config
    json.dumps(plan.plain())


@pytest.mark.parametrize(
    ("match", "by"),
    [
        ("params", "ffn.width"),
        ("params", "model.layers"),
        ("flops", "ffn.width"),
        ("flops", "trainer.max_steps"),
    ],
)
def test_a_budget_is_matched_by_its_knob(match, by):
    """Half of the layers are made good again by width, by layers, or by steps."""
    plan = planned(
        "trainer.max_steps=200",
        baseline={"model.layers": 4} if by != "model.layers" else {"ffn.width": 96},
        factors={"model.layers": [2]} if by != "model.layers" else {"ffn.width": [20]},
        budget={"match": match, "by": by, "tolerance": 0.2 if by == "model.layers" else 0.01},
    )
    base, other = plan.variants
    assert other.knob[0].startswith(f"{by}=") and base.knob == ()
    assert other.cost[match] == pytest.approx(
        base.cost[match], rel=0.2 if by == "model.layers" else 0.01
    )
    group, key = by.split(".")
    assert (
        other.config[group][key] > base.config[group].get(key)
        if base.config[group].get(key)
        else True
    )


@pytest.mark.parametrize(
    ("match", "factor", "level", "other"),
    [("tokens", "data.batch_size", 4, 7), ("flops", "model.layers", 2, 1)],
)
def test_a_budget_replaces_the_tokens_of_the_line_by_steps(match, factor, level, other):
    """Steps of 7 rows miss the tokens of the baseline by less than 1 %; half of the layers need
    more tokens than the line has for as many FLOPs.
    """
    plan = planned(
        *("trainer.max_steps=null", "trainer.max_tokens=1e6"),
        baseline={factor: level},
        factors={factor: [other]},
        budget={"match": match, "by": "trainer.max_steps", "tolerance": 0.01},
    )
    base, variant = plan.variants
    assert base.cost["tokens"] <= 1e6 and base.config["trainer"]["max_tokens"] == 10**6
    assert variant.cost[match] == pytest.approx(base.cost[match], rel=0.01)
    steps, *replaced = variant.knob
    assert steps == f"trainer.max_steps={variant.cost['steps']}"
    assert replaced == ["trainer.max_tokens=null"]
    assert variant.config["trainer"]["max_tokens"] is None


def test_the_knob_finds_the_nearest_whole_number():
    """cost = 7 width + 3: 100 lies between 13 (94) and 14 (101), and 14 is nearer."""
    config = {"ffn": {"width": 1, "expand": None}, "model": {"dim": 8}}
    node = {"match": "params", "by": "ffn.width", "tolerance": 0.02}

    def costs(config):
        return 7 * config["ffn"]["width"] + 3

    match = match_budget(config, 100, node, costs, lambda config: [])
    assert match.words == ("ffn.width=14",) and match.off == pytest.approx(0.01)
    odd = match_budget(
        config,
        100,
        node | {"tolerance": 0.1},
        costs,
        lambda c: ["odd"] if c["ffn"]["width"] % 3 else [],
    )
    assert odd.words == ("ffn.width=15",)
    with pytest.raises(
        ConfigError, match=r"ffn.width=14 is off by \+1 % and ffn.width=13 is off by -6 %"
    ):
        match_budget(config, 100, node | {"tolerance": 0.005}, costs, lambda config: [])
    with pytest.raises(ConfigError, match=r"ffn.width=142857 is off by \+0.0002 % and"):
        match_budget(config, 1_000_000, node | {"tolerance": 1e-9}, costs, lambda config: [])


def test_a_config_with_a_knob_equals_the_composed_one():
    config = compose([*SMALL, "ffn.expand=2"])
    assert with_knob(config, "ffn.width", 40) == compose(
        [*SMALL, "ffn.width=40", "ffn.expand=null"]
    )
    assert with_knob(config, "trainer.max_steps", 7) == compose(
        [*SMALL, "ffn.expand=2", "trainer.max_steps=7"]
    )


def test_an_unmatched_budget_is_refused_with_the_nearest_sizes():
    with pytest.raises(
        ConfigError,
        match=r"cannot be matched within 1 % by model.layers: .* \[variant ffn.width=80\]",
    ):
        planned(
            baseline={"ffn.width": 64},
            factors={"ffn.width": [80]},
            budget={"match": "params", "by": "model.layers"},
        )


def test_too_many_runs_are_refused():
    line = asked(seeds=100, max_runs=300)
    with pytest.raises(
        ConfigError,
        match=r"study\.max_runs: must hold the 400 runs of the design; got 300\. Raise it, or",
    ):
        variants(line.study, line.compose)


def test_faults_of_all_variants_are_reported_together():
    line = asked(
        baseline={"attn.heads": 4}, factors={"attn.heads": [5, 8], "norm": ["nrm"]} | {}, seeds=1
    )
    line.study["baseline"]["norm"] = "rms"
    with pytest.raises(ConfigError) as error:
        variants(line.study, line.compose)
    assert [fault.rpartition("[variant ")[2] for fault in error.value.messages] == [
        "attn.heads=5]",
        "norm=nrm]",
    ]


def test_a_fault_of_several_variants_is_reported_once():
    tune = {"optim.rl": [1e-3, 3e-3]}
    line = asked(
        baseline={"attn.heads": 4}, factors={"attn.heads": [8]}, seeds=1, tune=tune, budget={}
    )
    with pytest.raises(ConfigError) as error:
        variants(line.study, line.compose)
    (fault,) = error.value.messages
    assert fault.startswith("optim.rl: optim 'adamw' has no option 'rl'.") and fault.endswith(
        "[variant baseline optim.rl=0.001 and baseline optim.rl=0.003 and attn.heads=8"
        " optim.rl=0.001 and attn.heads=8 optim.rl=0.003]"
    )
    line = asked(
        baseline={"norm": "rms"},
        factors={"norm": ["nrm"]},
        seeds=1,
        tune={"optim.lr": [1e-3, 3e-3]},
        budget={},
    )
    with pytest.raises(ConfigError) as error:
        variants(line.study, line.compose)
    (fault,) = error.value.messages
    assert fault.endswith("[variant norm=nrm optim.lr=0.001 and norm=nrm optim.lr=0.003]")


def test_a_level_that_changes_nothing_is_refused():
    factors = {"alias": {"same": {"attn.heads": 2}}}
    with pytest.raises(ConfigError, match="alias=same and baseline are the same run, so there is"):
        planned(seeds=1, factors=factors, baseline={"alias": {}}, budget={})


@pytest.mark.parametrize(
    ("labels", "fault"),
    [
        (
            {"placement=post": "A", "norm=layer": "A"},
            "study.labels: norm=layer and placement=post are both called 'A'.",
        ),
        (
            {"placement=post": "baseline"},
            "study.labels: baseline and placement=post are both called 'baseline'.",
        ),
        (
            {"placement=post": "norm=layer"},
            "study.labels: norm=layer and placement=post are both called 'norm=layer'.",
        ),
        ({"placement=no": "A"}, "study.labels.placement=no: is no variant."),
        (
            {"post": "A"},
            "study.labels.post: is no variant. Known: baseline, ",
        ),
    ],
)
def test_names_of_variants_are_unique(labels, fault):
    factors, base = {"norm": ["layer"], "placement": ["post"]}, {"norm": "rms", "placement": "pre"}
    with pytest.raises(ConfigError) as error:
        planned(seeds=1, factors=factors, baseline=base, budget={}, labels=labels)
    assert error.value.messages[0].startswith(fault)


def test_variants_with_the_same_run_are_refused():
    """What a run does not depend on tells no two apart, though their configs differ."""
    with pytest.raises(
        ConfigError,
        match=r"data\.num_workers=1 and baseline are the same run, so there is nothing to",
    ):
        planned(
            seeds=2, factors={"data.num_workers": [1]}, baseline={"data.num_workers": 0}, budget={}
        )


@pytest.mark.parametrize(
    "node",
    [
        {"factors": {"seed": [1]}, "baseline": {"seed": 0}},
        {"factors": {"norm": ["layer"]}, "baseline": {"norm": "rms"}, "tune": {"seed": [1, 2]}},
        {
            "factors": {"ffn.width": [32]},
            "baseline": {"ffn.width": 64},
            "budget": {"match": "params"},
        },
        {
            "factors": {"norm": ["layer"]},
            "baseline": {"norm": "rms"},
            "tune": {"trainer.max_steps": [4, 8]},
            "budget": {"match": "tokens"},
        },
        {
            "factors": {"norm": ["layer"]},
            "baseline": {"norm": "rms"},
            "tune": {"optim.lr": [1e-3, 1e-3]},
        },
    ],
)
def test_a_difference_that_the_study_overrides_is_refused(node):
    """The seed and the key of the budget are set for every variant."""
    with pytest.raises(ConfigError, match=r"same run, so .* the seed and study\.budget\.by are"):
        planned(seeds=1, **{"budget": {}} | node)


def test_tuning_runs_every_variant_with_every_value():
    plan = planned(
        seeds=1, tune={"optim.lr": [1e-3, 3e-3]}, factors={"placement": ["post"]}, budget={}
    )
    assert [(v.label, v.tuned, v.config["optim"]["lr"]) for v in plan.variants] == [
        ("baseline", ("optim.lr=0.001",), 1e-3),
        ("baseline", ("optim.lr=0.003",), 3e-3),
        ("placement=post", ("optim.lr=0.001",), 1e-3),
        ("placement=post", ("optim.lr=0.003",), 3e-3),
    ]


def test_a_key_depends_on_everything_that_determines_the_result():
    config = compose(SMALL)
    key = run_key(config, "data")
    assert key == run_key(compose([*SMALL, "trainer.val_every=7", "logger=csv"]), "data")
    others = [compose([*SMALL, word]) for word in ("seed=1", "placement=post", "optim.lr=7e-3")]
    assert (
        len({key, run_key(config, "other data"), *(run_key(other, "data") for other in others)})
        == 5
    )


def test_a_key_depends_on_the_code_of_components(monkeypatch):
    config = compose(
        [
            *SMALL,
            "mask.name=all_of",
            "mask.of=[{name: causal}, {name: dilated}]",
            "attn.score=entmax",
        ]
    )
    named = set(component_modules(config))
    assert {
        "xformer_kit.attention.multi_head",
        "xformer_kit.placement.pre",
        "xformer_kit.data.corpus.python",
    } & named
    key = run_key(config, "data")
    monkeypatch.setattr("xformer_kit.study.run_key.code_hash", lambda module: "changed")
    assert run_key(config, "data") != key


def test_a_key_depends_on_the_imports_of_user_components(tmp_path, monkeypatch):
    """Files of one's own, and theirs; not those of packages that are installed, nor what is in no
    component's file.
    """
    import xformer_kit.study.run_key as keys

    monkeypatch.syspath_prepend(tmp_path)
    files = {
        "mine": "import json\nimport torch.nn\nfrom far_a import SCALE\n",
        "far_a": "import far_b\nSCALE = 1\n",
    }
    for name, text in (files | {"far_b": "x = 1\n", "far_c": "x = 1\n"}).items():
        (tmp_path / f"{name}.py").write_text(text)
    assert keys._imported_files(files["mine"], set()) == {
        tmp_path / "far_a.py",
        tmp_path / "far_b.py",
    }

    module = types.ModuleType("xformer_kit_components_mine_1")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(keys.inspect, "getsource", lambda module: files["mine"])
    found = []
    for file in ("far_a.py", "far_c.py", "far_b.py"):
        keys.code_hash.cache_clear()
        (tmp_path / file).write_text(
            "SCALE = x = 2\nimport far_b\n" if file == "far_a.py" else "x = 2\n"
        )
        found.append(keys.code_hash(module.__name__))
    keys.code_hash.cache_clear()
    assert found[0] == found[1] != found[2]


def test_costs_are_those_of_a_run():
    plan = planned(seeds=1, factors={"placement": ["post"]}, budget={})
    cost, config = plan.variants[0].cost, plan.variants[0].config
    assert (
        cost["steps"] == 3
        and cost["tokens"] == 3 * config["data"]["seq_len"] * config["data"]["batch_size"]
    )
    assert cost["flops"] == cost["flops_per_token"] * cost["tokens"]
    with torch.device("meta"):
        assert cost["params"] == sum(
            p.numel()
            for p in build_model(config, Costs().of(config)[0].tokenizer.size).parameters()
        )
