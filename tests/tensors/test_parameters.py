"""The table of parameters: statements of modules, defaults without a statement, and its readers."""

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

from xformer_kit import ConfigError, build, compose
from xformer_kit.optim import parameter_groups
from xformer_kit.tensors import (
    ParameterInfo,
    SubmoduleInfo,
    embedding,
    hidden,
    parameter_table,
    vector,
)

ROOT = Path(__file__).parents[2]


class Norm(nn.Module):
    parameter_info = {"gain": vector("normalised")}

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3))


class Inner(nn.Module):
    parameter_info = {
        "up": hidden("width", "dim"),
        "norm": SubmoduleInfo({"normalised": "width"}, shared_by_heads=True),
        "absent": vector("dim"),
        "up.absent": vector("dim"),
    }

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(2, 3)
        self.norm = Norm()


class Derived(Inner):
    parameter_info = {"up.bias": vector("width", bias=True, zero_gradient=True)}


class Outer(nn.Module):
    parameter_info = {"inner.up": hidden("rank", "dim", decays=False)}

    def __init__(self):
        super().__init__()
        self.inner = Inner()


def test_a_submodule_describes_its_weight_and_its_bias_and_absent_names_are_ignored():
    assert parameter_table(Inner()) == {
        "up.weight": hidden("width", "dim", decays=True, shared_by_heads=False),
        "up.bias": vector("width", bias=True, decays=False, shared_by_heads=False),
        "norm.gain": vector("width", decays=False, shared_by_heads=True),
    }


def test_a_subclass_adds_to_the_statements_of_its_base_and_an_outer_module_replaces_them():
    derived, outer = parameter_table(Derived()), parameter_table(Outer())
    assert (
        derived["up.bias"].zero_gradient
        and derived["up.weight"] == parameter_table(Inner())["up.weight"]
    )
    assert outer["inner.up.weight"] == hidden("rank", "dim", decays=False, shared_by_heads=False)
    assert outer["inner.norm.gain"].axes == ("width",)


def test_an_instance_states_what_depends_on_its_options():
    module = Inner()
    module.parameter_info = {"up": hidden("width", "rank")}
    assert parameter_table(module)["up.weight"].axes == ("width", "rank")
    assert parameter_table(module)["norm.gain"].axes == ("width",)


def test_without_a_statement_the_number_of_axes_decides():
    module = nn.Module()
    module.matrix, module.gain = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(2))
    module.bias, module.rows = nn.Parameter(torch.ones(2)), nn.Embedding(4, 2)
    module.map, module.tied = nn.Linear(2, 2), nn.Linear(2, 2)
    module.tied.weight = module.map.weight
    found = {
        name: (info.role, info.axes, info.decays, info.bias)
        for name, info in parameter_table(module).items()
    }
    assert found == {
        "matrix": ("hidden", None, True, False),
        "gain": ("vector", None, False, False),
        "bias": ("vector", None, False, True),
        "rows.weight": ("embedding", None, True, False),
        "map.weight": ("hidden", None, True, False),
        "map.bias": ("vector", None, False, True),
        "tied.bias": ("vector", None, False, True),
    }


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["attn=latent", "ffn=moe", "lora.rank=2", "lora.of=[up,q]"],
        ["model=encoder_decoder", "task=seq2seq", "placement=hyper_connections"],
    ],
)
def test_a_model_on_the_meta_device_has_the_same_table(words):
    config = compose([*words, "model.dim=32", "attn.heads=4", "model.layers=2"])
    with torch.device("meta"):
        empty = build(config, 11)
    table = parameter_table(build(config, 11))
    assert parameter_table(empty) == table
    assert set(table) == {name for name, _ in empty.named_parameters()}
    assert table["embed.weight"] == embedding("vocab", "dim", decays=True, shared_by_heads=False)
    if "lora.rank=2" in words:
        experts = "decoder.0.ffn.experts.up"
        assert table[f"{experts}.lora_a"].axes == ("experts", "rank", "dim")
        assert table[f"{experts}.lora_b"].axes == ("experts", "width", "rank")


def test_an_untied_head_is_a_head_and_a_factorised_embedding_has_its_own_axis():
    words = ["model.tie_embeddings=false", "model.embed_dim=6", "model.dim=32", "attn.heads=4"]
    table = parameter_table(build(compose(words), 11))
    assert table["head.weight"].role == "head" and table["head.weight"].axes == ("vocab", "dim")
    assert table["embed.weight"].axes == ("vocab", "embed_dim")
    assert table["decoder.project.weight"].axes == ("dim", "embed_dim")


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.module, self.submodule = nn.Linear(2, 2, False), nn.Linear(2, 2, False)
        self.weight = nn.Parameter(torch.ones(2))


def test_a_submodule_called_module_keeps_its_name():
    outer = nn.Module()
    outer.inner = Wrapped()
    assert list(parameter_table(outer)) == [name for name, _ in outer.named_parameters()]


@pytest.mark.parametrize("name", ["up", "norm"])
def test_a_compiled_submodule_keeps_its_description(name):
    module = Inner()
    expected = parameter_table(module)
    setattr(module, name, torch.compile(getattr(module, name)))
    assert parameter_table(module) == expected


@pytest.mark.parametrize(
    "statements", [{"up": "hidden"}, {"up": ("width", "dim")}, {1: hidden()}, ["up"], None]
)
def test_what_is_no_description_is_refused_in_one_sentence(statements):
    module = type("Mine", (Inner,), {"parameter_info": statements})()
    with pytest.raises(ConfigError, match=r"^Mine\.parameter_info: must map names of parameters"):
        parameter_table(module)


def test_decay_is_a_truth_value():
    module = nn.Module()
    module.up = nn.Linear(2, 2, False)
    module.parameter_info = {"up": hidden("a", "b", decays=0)}
    (group,) = parameter_groups(module, 0.1)
    assert group["weight_decay"] == 0.0 and [name for name, _ in group["params"]] == ["up.weight"]


ENDS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition"}
WORDS = ("weight", "bias", "gain", "lora_", "embed.", "head.", "attn.", "ffn.", ".o", ".down")
# Patterns of a user: model.freeze, lora.of, init_from.allow.
OF_USERS = {"xformer_kit/optim/freezing.py", "xformer_kit/model/transfer.py"}


def ends_read(source: str) -> list[str]:
    """The calls that compare the beginning or the end of a text with a part of a parameter's
    name.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ENDS:
            texts = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
            if any(isinstance(t, str) and any(word in t for word in WORDS) for t in texts):
                found.append(ast.unparse(node))
    return found


def test_no_file_reads_the_beginning_or_the_end_of_a_parameters_name():
    assert ends_read("name.endswith(('.o.weight', 'bias'))")
    assert ends_read("f'.{name}'.removesuffix('.gate.weight')")
    found = {
        str(path.relative_to(ROOT)): calls
        for folder in ("xformer_kit", "tasks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (calls := ends_read(path.read_text(encoding="utf-8")))
    }
    assert found.keys() <= OF_USERS, found


def test_a_description_is_a_value():
    assert ParameterInfo("hidden") == hidden() and len({hidden(), hidden(), vector()}) == 2
