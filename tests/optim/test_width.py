"""muP: initial weights, factors and rates of a wider model, by roles and axes of parameters."""

import math

import pytest
import torch

from tests.messages import messages
from tests.user_components import forget_user_components
from xformer_kit import ConfigError, build, compose
from xformer_kit.ffn import FFNS
from xformer_kit.inspect.coordinates import changes, exponent, holds, modules
from xformer_kit.optim import create_optimizer
from xformer_kit.optim.muon import Muon, shape_factor
from xformer_kit.tensors import hidden
from xformer_kit.tensors.parametrization import Growth, base_shape, growth

WORDS = ["model=decoder", "model.layers=2", "attn.heads=4", "data=pydoc"]
MUP = ["model.parametrization=mup", "model.base_dim=32"]


def composed(*words):
    return compose([*WORDS, *words], data=False)


def test_at_the_base_width_it_is_the_standard_parametrization():
    models = [
        build(composed("model.dim=32", *more), vocab_size=50).eval() for more in ((), tuple(MUP))
    ]
    ids = torch.arange(12).view(2, 6)
    assert torch.equal(*(model(ids) for model in models))
    for one, two in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(one, two)


def test_four_times_as_wide_written_out():
    """Table 8 of the paper, for a model of 128 channels and a base of 32."""
    config = composed("model.dim=128", "optim.lr=0.01", "model.tie_embeddings=false", *MUP)
    model = build(config, vocab_size=5000)
    block = model.decoder.blocks[0]
    assert block.attn.scale == pytest.approx(1 / 32 * math.sqrt(8), rel=1e-6)  # sqrt(8) / 32
    assert model.head.logit_scaling.factor == 0.25
    for parameter, std in (
        (model.embed.weight, 0.02),
        (model.head.weight, 0.02),
        (block.attn.q.weight, 0.01),
        (block.ffn.down.weight, 0.01 / math.sqrt(4)),  # of four that write to the residual stream
    ):
        assert parameter.std().item() == pytest.approx(std, rel=0.05)
    groups = create_optimizer(config["optim"], model).param_groups
    rate = {n: (g["lr"], g["weight_decay"]) for g in groups for n in g["param_names"]}
    assert rate["embed.weight"] == rate["head.weight"] == (0.01, 0.1)
    assert rate["decoder.0.attn.q.weight"] == (0.0025, 0.4)  # its product is that of the others
    assert rate["decoder.norm.weight"] == (0.01, 0.0)


def test_muon_keeps_its_rate():
    config = composed("model.dim=128", "optim=muon", *MUP)
    model = build(config, vocab_size=50)
    assert {group["lr"] for group in create_optimizer(config["optim"], model).param_groups} == {
        0.02,
        2e-3,
    }


@pytest.mark.parametrize(
    ("info", "shape", "at_base", "grown", "initial"),
    [
        (hidden("width", "dim"), (96, 64), (24, 16), (4, 4), 1 / 2),
        (hidden("heads*head_dim", "dim"), (64, 64), (16, 16), (4, 4), 1 / 2),
        (hidden("rank", "dim"), (8, 64), (8, 16), (1, 4), 1 / 4),  # output weights of the paper
        (hidden("dim", "rank"), (64, 8), (16, 8), (4, 1), 1),  # input weights
        (hidden("experts", "width", "dim"), (3, 96, 64), (3, 24, 16), (4, 4), 1 / 2),
    ],
)
def test_axes_that_grow(info, shape, at_base, grown, initial):
    assert base_shape(info, shape, 4.0) == at_base
    assert growth(info, 4.0) == grown
    assert growth(info, 4.0).initial == initial


@pytest.mark.parametrize("scale", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("base", [(24, 16), (16, 24), (16, 16)])
@pytest.mark.parametrize("grown", [(4, 4), (1, 4), (4, 1)])
def test_singular_values_of_a_step_of_muon_are_in_proportion_to_the_root_of_out_over_in(
    scale, base, grown
):
    """Those of a step are its rate times its factor."""
    shape = tuple(n * by for n, by in zip(base, grown, strict=True))
    divisor = Muon.width_divisor({"scale": scale}, shape, Growth(*grown))
    found = shape_factor(scale, *shape) / divisor / shape_factor(scale, *base)
    assert found == pytest.approx(math.sqrt(grown[0] / grown[1]))


@pytest.mark.extended
@pytest.mark.parametrize("optim", ["adamw", "lion", "muon"])
@pytest.mark.parametrize(
    "words",
    [
        ["model=decoder"],
        ["model=decoder", "attn=latent", "ffn=moe"],
        ["model=encoder"],
        ["model=encoder_decoder", "task=seq2seq", "model.share_embeddings=false"],
    ],
    ids=" ".join,
)
@pytest.mark.every_case
def test_steps_change_activations_by_as_much_at_every_width(words, optim):
    words = [*words, "model.layers=1", "attn.heads=4", f"optim={optim}"]
    found = changes([*words, *MUP], (64, 128, 256), 3, seeds=3)
    assert {m: exponent(found, m) for m in modules(found) if not holds(found, m)} == {}


@pytest.mark.extended
def test_in_the_standard_parametrization_the_changes_grow_with_the_width():
    found = changes(WORDS, (64, 128, 256), 3)
    assert [name for name in modules(found) if exponent(found, name) < 0.3] == []


def test_a_bias_of_logits_changes_them_by_as_much_at_every_width():
    """Logits are divided by the ratio, so its rate is multiplied by it."""
    for optim, rate in (("adamw", 0.01), ("muon", 2e-3)):
        config = composed("model.dim=128", "model.head_bias=true", f"optim={optim}", *MUP)
        config["optim"]["lr"] = 0.01
        model = build(config, vocab_size=50)
        groups = create_optimizer(config["optim"], model).param_groups
        of_bias = [g["lr"] for g in groups if "head.bias" in g["param_names"]]
        assert of_bias == [pytest.approx(4 * rate)]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["model.dim=16"],
            "model.base_dim: must be at most model.dim, 16; got 32. It is the dim of the smaller"
            " model.",
        ),
        (
            ["model.parametrization=standard"],
            "model.base_dim: is about model.parametrization=mup; got 32. Set that, or leave it"
            " out.",
        ),
        (
            ["optim=sgd"],
            "optim: has no rule for the rates of model.parametrization=mup; got sgd. Choose one"
            " of adamw, adam, muon, adamw_8bit, lion, schedule_free.",
        ),
        (
            ["optim=muon", "optim.other=sgd"],
            "optim.other: has no rule for the rates of model.parametrization=mup; got sgd. Choose"
            " one of adamw, adam, muon, adamw_8bit, lion, schedule_free.",
        ),
        (
            ["optim=muon", "optim.per_head=true", "attn.head_dim=16"],
            "optim.per_head: has matrices that do not grow with the width, with attn.head_dim, and"
            " parametrization=mup no rule; got true. Leave one out.",
        ),
        (
            ["model.embed_scale=sqrt_dim"],
            "model.embed_scale: grows with dim, and parametrization=mup keeps embeddings as they"
            " are; got sqrt_dim. Try model.embed_scale=8.0, a number.",
        ),
    ],
)
def test_faults(words, sentence):
    with pytest.raises(ConfigError) as error:
        composed("model.dim=64", *MUP, *words)
    assert messages(error.value.faults) == [sentence]


def test_a_component_without_stated_axes_is_refused_by_name(tmp_path):
    file = tmp_path / "plain_map.py"
    file.write_text(
        "from torch import nn\n"
        "from xformer_kit.ffn import FFN, FFNS\n"
        "@FFNS.register('plain_map')\n"
        "class PlainMap(FFN):\n"
        "    '''x W.'''\n"
        "    def __init__(self, dim: int):\n"
        "        super().__init__()\n"
        "        self.map = nn.Linear(dim, dim)\n"
        "    def forward(self, x, context):\n"
        "        return self.map(x), {}\n"
    )
    with pytest.raises(ConfigError) as error:
        composed("model.dim=64", *MUP, f"components=[{file}]", "ffn=plain_map")
    forget_user_components([FFNS])
    assert messages(error.value.faults)[0] == (
        "model.parametrization: needs the axes of decoder.0.ffn.map.weight; got mup. State it in"
        " its module: parameter_info = {NAME: hidden('dim', 'dim')}, by its axes."
    )
