"""Each law of xformer_kit/laws/building.py is broken by a faulty component."""

import pytest
import torch
from breaking import broken_component_test, laws_in, registered
from torch import nn
from torch.nn import functional as F

from xformer_kit import config as config_module
from xformer_kit.ffn import FFN, FFNS, MLP
from xformer_kit.laws import LAWS, LawBroken, tiny_config
from xformer_kit.laws import building as building_laws
from xformer_kit.laws.building import sampled_comparisons
from xformer_kit.model.build import build_model
from xformer_kit.model.head import Head
from xformer_kit.norm import NORMS
from xformer_kit.placement import PLACEMENTS, Placement


class TorchRandomScale(nn.Module):
    """A scale that torch's own generator draws; it is one-dimensional, so that no initialisation
    rule replaces it.
    """

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        return x * self.weight


class Noisy(MLP):
    def forward(self, x, tokens):
        return super().forward(x + 1e-3 * torch.randn_like(x))


class WithoutTotal(Placement):
    """Adds the outputs of sublayers without `total`."""

    def forward(self, state, f, tokens):
        (x,) = state
        return (x + sum(f.outputs(x)),)


class NoBiasOnMeta(MLP):
    """Has one parameter less on the meta device."""

    def __init__(self, dim: int):
        super().__init__(dim, bias=torch.get_default_device().type != "meta")


class CountsItsModels(nn.Module):
    """A buffer that depends on how many were built before; it prints as the same module."""

    built = 0

    def __init__(self, dim: int):
        super().__init__()
        CountsItsModels.built += 1
        self.register_buffer("shift", torch.full((dim,), 1e-3 * self.built), persistent=False)

    def forward(self, x):
        return x + self.shift


class Maps(FFN):
    """Holds its matrices in a ParameterDict, which prints the types of its tensors."""

    def __init__(self, dim: int):
        super().__init__()
        shapes = {"up": (7, dim), "down": (dim, 7)}
        self.maps = nn.ParameterDict(
            {name: nn.Parameter(torch.empty(shape)) for name, shape in shapes.items()}
        )

    def forward(self, x, tokens):
        return F.linear(F.linear(x, self.maps["up"]).relu(), self.maps["down"]), {}


class HalfGain(nn.Module):
    """Its weight has the name and shape of that of norm=rms, but another start."""

    def __init__(self, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.full((dim,), 0.5))

    def forward(self, x):
        return x * self.weight


ARGUMENTS = [
    (
        "residual multiplier",
        PLACEMENTS,
        WithoutTotal,
        "a sublayer matters",
        {"placement": "broken"},
    ),
    (
        "start",
        NORMS,
        TorchRandomScale,
        "starts elsewhere when torch's generator does",
        {"norm": "broken"},
    ),
    ("rebuild", FFNS, Noisy, "something else", {"ffn": "broken"}),
    ("rebuild", FFNS, NoBiasOnMeta, r"meta device. has .*up.bias is missing", {"ffn": "broken"}),
    (
        "rebuild",
        NORMS,
        CountsItsModels,
        r"placement.attn.norm.0.shift has other values",
        {"norm": "broken"},
    ),
]


test_a_broken_component_is_caught = broken_component_test(ARGUMENTS)


def test_every_law_catches_a_broken_component():
    assert laws_in("building") == {law for law, *_ in ARGUMENTS} | {"tying"}  # see below


def test_a_model_with_a_dict_of_parameters_is_rebuilt():
    with registered(FFNS, Maps):
        assert LAWS["rebuild"](tiny_config(ffn="broken")) is None


@pytest.mark.extended
def test_components_whose_parameters_have_the_same_name_may_start_differently():
    with registered(NORMS, HalfGain):
        assert LAWS["start"](tiny_config(norm="broken")) is None


def test_a_tied_head_with_a_copy_of_the_embedding_is_caught(monkeypatch):
    monkeypatch.setattr(
        "xformer_kit.model.build.TiedHead",
        lambda embed, *rest: Head(nn.Parameter(embed.weight.clone()), *rest),
    )
    with pytest.raises(LawBroken, match="the head and the embedding are two storages"):
        LAWS["tying"](tiny_config())


def test_a_head_that_is_saved_twice_is_caught(monkeypatch):
    monkeypatch.setattr(
        "xformer_kit.model.build.TiedHead", lambda embed, *rest: Head(embed.weight, *rest)
    )
    with pytest.raises(LawBroken, match="a tied head is saved twice"):
        LAWS["tying"](tiny_config())


def test_shared_embeddings_that_are_two_matrices_are_caught(monkeypatch):
    def build_with_own_source_embedding(*args, **options):
        model = build_model(*args, **options)
        model.source_embed = nn.Embedding(*model.embed.weight.shape)
        return model

    monkeypatch.setattr(
        "xformer_kit.laws.tiny_composition.build_model", build_with_own_source_embedding
    )
    with pytest.raises(LawBroken, match="source and target are embedded by two matrices"):
        LAWS["tying"](tiny_config("encoder_decoder"))


def test_weights_that_depend_on_other_components_are_caught(monkeypatch):
    """One generator for all parameters in turn, as in plain torch."""
    from xformer_kit.model import initial_weights as init

    def shared(seed, name):
        if name == "embed.weight":
            shared.source = torch.Generator().manual_seed(seed)
        return shared.source

    monkeypatch.setattr(init, "generator", shared)
    with pytest.raises(
        LawBroken, match=r"decoder\.0\.\w+\.\w+\.weight starts elsewhere with attn=\w+"
    ):
        LAWS["start"](tiny_config())
    with (
        sampled_comparisons(),
        pytest.raises(LawBroken, match=r" starts elsewhere with \w+=\w+ and \w+=\w+"),
    ):
        LAWS["start"](tiny_config())


def test_a_seed_without_effect_is_caught(monkeypatch):
    from xformer_kit.model import initial_weights as init

    generator = init.generator
    monkeypatch.setattr(init, "generator", lambda seed, name: generator(0, name))
    with pytest.raises(LawBroken, match="another seed gives the same weights"):
        LAWS["start"](tiny_config())


def test_a_config_that_changes_when_it_is_saved_is_caught(monkeypatch):
    real = config_module.config_yaml
    monkeypatch.setattr(
        building_laws, "config_yaml", lambda config: real(config).replace("layers: 2", "layers: 3")
    )
    with pytest.raises(LawBroken, match="the config changes when it is saved and read: model"):
        LAWS["rebuild"](tiny_config())


@pytest.mark.extended
def test_the_seed_of_the_weights_may_differ_from_the_seed_of_the_run():
    assert LAWS["start"](tiny_config(seed=3)) is None
