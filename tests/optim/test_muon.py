"""Muon: equal to torch.optim.Muon on matrices of their own, by role, and with several ranks."""

import copy
import math

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit import build, compose
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import build_tiny_model
from xformer_kit.optim import OPTIMIZERS, create_optimizer, muon
from xformer_kit.registry import Context
from xformer_kit.tensors import hidden, parameter_table

NODE = {"name": "muon", "lr": 0.02, "weight_decay": 0.1}


class Map(nn.Module):
    """A weight of some axes."""

    def __init__(self, *shape, axes):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(1)))
        self.parameter_info = {"weight": hidden(*axes)}


def steps(model, node, count=3, **given):
    """The weights after some steps with random gradients."""
    optimizer, draw = create_optimizer(node, model), torch.Generator().manual_seed(0)
    for _ in range(count):
        for p in model.parameters():
            p.grad = torch.randn(p.shape, generator=draw)
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def torchs(weights, scale="original", lr=0.02, count=3):
    """torch.optim.Muon on matrices, which all draw from the same random numbers."""
    parameters = [nn.Parameter(w.clone()) for w in weights]
    optimizer = torch.optim.Muon(parameters, lr=lr, weight_decay=0.1, adjust_lr_fn=scale)
    return parameters, optimizer


@pytest.mark.parametrize("scale", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("shape", [(12, 20), (20, 12), (16, 16), (1, 24)])
def test_a_matrix_takes_the_step_of_torch(shape, scale):
    """Which computes in bf16: the step, not the weight, is compared."""
    model = Map(*shape, axes=("width", "dim"))
    start = model.weight.detach().clone()
    (parameter,), optimizer = torchs([start], scale)
    draw = torch.Generator().manual_seed(0)
    for _ in range(3):
        parameter.grad = torch.randn(shape, generator=draw)
        optimizer.step()
    (found,) = steps(model, NODE | {"scale": scale})
    right = parameter.detach() - start
    assert (found - start - right).norm() < 0.02 * right.norm()


def test_the_iterations_are_those_of_the_post_written_out():
    a, b, c = muon.COEFFICIENTS
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    right = (x / x.norm()).T
    for _ in range(5):
        gram = right @ right.T
        right = a * right + (b * gram + c * gram @ gram) @ right
    assert_close(muon.newton_schulz(x[None], 5)[0], right.T)
    values = torch.linalg.svdvals(muon.newton_schulz(x[None], 5)[0])
    assert values.min() > 0.6 and values.max() < 1.3


def apart(parts, node):
    """The weights of modules of their own after the same steps."""
    return [steps(part, node, count=1)[0] for part in parts]


@pytest.mark.parametrize(
    ("shape", "axes", "split"),
    [
        ((3, 8, 6), ("experts", "width", "dim"), lambda w: [*w]),
        ((24, 6), ("3*heads*head_dim", "dim"), lambda w: [*w.chunk(3)]),
        ((2, 10, 6), ("experts", "2*width", "dim"), lambda w: [x for e in w for x in e.chunk(2)]),
    ],
)
def test_matrices_in_one_tensor_are_matrices_of_their_own(shape, axes, split):
    whole = Map(*shape, axes=axes)
    start, grad = whole.weight.detach().clone(), torch.randn(shape)
    whole.weight.grad = grad
    create_optimizer(NODE, whole).step()
    for got, before, own in zip(
        split(whole.weight.detach()), split(start), split(grad), strict=True
    ):
        part = nn.Linear(*reversed(before.shape), bias=False)
        part.weight.data.copy_(before)
        part.weight.grad = own.contiguous()
        create_optimizer(NODE, part).step()
        assert_close(got, part.weight.detach())


def test_each_head_is_a_matrix():
    """Rows of queries and columns of the output."""
    model = build_tiny_model(tiny_config(layers=1))
    attn = model.decoder.blocks[0].attn
    head = attn.head_dim
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    before = {name: p.detach().clone() for name, p in attn.named_parameters()}
    create_optimizer(NODE | {"per_head": True, "weight_decay": 0.0}, model).step()
    for name, cut in (
        ("q", lambda w: w[:head]),
        ("k", lambda w: w[-head:]),
        ("o", lambda w: w[:, :head]),
    ):
        weight = attn.get_submodule(name).weight
        grad = cut(weight.grad)
        direction = muon.newton_schulz((0.05 * grad).lerp(grad, 0.05)[None], 5)[0]
        factor = 0.02 * math.sqrt(max(1, grad.shape[0] / grad.shape[1]))
        moved = cut(before[f"{name}.weight"]) - cut(weight.detach())
        assert_close(moved, factor * direction, rtol=1e-3, atol=1e-5)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("attn", "expected"),
    [  # (rows, columns) of blocks; values of compositional attention belong to no head
        ({}, {"q": (4, 1), "k": (2, 1), "v": (2, 1), "o": (1, 4)}),
        ({"name": "latent"}, {"q": (4, 1), "k": (4, 1), "v": (4, 1), "o": (1, 4), "kv": (1, 1)}),
        ({"name": "differential"}, {"q": (4, 1), "k": (2, 1), "v": (2, 1), "o": (1, 4)}),
        ({"name": "compositional"}, {"q": (4, 1), "k": (2, 1), "v": (1, 1), "o": (1, 4)}),
        (
            {"name": "gated_delta", "v_heads": 8},
            {"q": (4, 1), "k": (4, 1), "v": (8, 1), "o": (1, 8)},
        ),
        ({"name": "linear"}, {"q": (4, 1), "k": (4, 1), "v": (4, 1), "o": (1, 4)}),
    ],
    ids=lambda value: value.get("name", "") if isinstance(value, dict) else "",
)
def test_each_head_of_each_attention_is_a_block(attn, expected):
    words = [f"attn.{key}={value}" for key, value in attn.items() if key != "name"]
    name = attn.get("name", "multi_head")
    shared = ["attn.kv_heads=2"] if expected["k"] == (2, 1) else []
    sizes = ["model.dim=64", "model.layers=1", "attn.heads=4", "position=none"]
    model = build(compose([f"attn={name}", *words, *shared, *sizes], data=False), vocab_size=9)
    table, parameters = parameter_table(model), dict(model.named_parameters())
    for short, blocks in expected.items():
        full = f"decoder.0.attn.{short}.weight"
        if full not in parameters:
            assert short == "kv", short
            continue
        found = muon.layout(parameters[full], table[full], per_head=True)
        assert (found.rows, found.columns) == blocks, short


def test_muon_for_the_other_parameters_is_refused():
    (message,) = messages(OPTIMIZERS.faults({"name": "muon", "other": "muon"}, "optim", Context()))
    assert message.endswith("trains hidden matrices; got muon. Try adamw.")


def test_only_hidden_matrices_by_their_role():
    model = build_tiny_model(tiny_config(ffn={"name": "moe"}, model="decoder"))
    optimizer, table = create_optimizer(NODE, model), parameter_table(model)
    matrices, *rest = optimizer.optimizers
    names = [name for group in matrices.param_groups for name in group["param_names"]]
    assert {table[name].role for name in names} == {"hidden"}
    others = [n for one in rest for group in one.param_groups for n in group["param_names"]]
    assert {table[name].role for name in others} == {"embedding", "head", "vector"} - (
        set() if any(info.role == "head" for info in table.values()) else {"head"}
    )
    assert {group["lr"] for one in rest for group in one.param_groups} == {2e-3}


def test_normalised_rows_have_equal_means_over_steps_and_the_norm_of_the_matrix():
    """NorMuon, written out for one matrix."""
    model = Map(8, 6, axes=("width", "dim"))
    weight, draw = model.weight.detach().clone(), torch.Generator().manual_seed(0)
    momentum, squares = torch.zeros(8, 6), torch.zeros(8, 1)
    for _ in range(3):
        grad = torch.randn(8, 6, generator=draw)
        momentum = 0.95 * momentum + 0.05 * grad
        o = muon.newton_schulz((0.05 * grad + 0.95 * momentum)[None], 5)[0]
        squares = 0.95 * squares + 0.05 * o.square().mean(1, keepdim=True)
        rows = o / squares.sqrt()
        step = rows * o.norm() / rows.norm()
        weight = weight - 0.02 * 0.1 * weight - 0.02 * math.sqrt(8 / 6) * step
    (found,) = steps(model, NODE | {"normalise": 0.95})
    assert_close(found, weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["muon", "lion", "sgd"])
def test_a_skipped_step_changes_neither_weights_nor_state(name):
    """As on a GPU, where the run sets found_inf in place of waiting for the gradient's norm."""
    model = build_tiny_model(tiny_config(layers=1))
    node = {"name": name, "normalise": 0.95} if name == "muon" else {"name": name}
    optimizer = create_optimizer(node, model)
    assert optimizer._step_supports_amp_scaling
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    optimizer.found_inf = torch.tensor(0.0)
    optimizer.step()
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()["state"]))
    for p in model.parameters():
        p.grad = torch.full_like(p, torch.nan)
    optimizer.found_inf = torch.tensor(1.0)
    optimizer.step()
    for own, old in zip((model.state_dict(), optimizer.state_dict()["state"]), before, strict=True):
        assert_close(own, old, rtol=0, atol=0)


def of_rank(rank, folder, shared):
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    muon.SHARED = shared
    model = build_tiny_model(tiny_config(layers=2, ffn={"name": "moe"}))
    torch.save(steps(model, NODE), f"{folder}/{rank}_{shared}.pt")
    dist.destroy_process_group()


@pytest.mark.extended
def test_ranks_that_share_the_matrices_take_the_same_step(tmp_path):
    mp.spawn(of_rank, args=(str(tmp_path), 0), nprocs=2)
    right = steps(build_tiny_model(tiny_config(layers=2, ffn={"name": "moe"})), NODE)
    for rank in range(2):
        for got, own in zip(torch.load(tmp_path / f"{rank}_0.pt"), right, strict=True):
            assert_close(got, own, rtol=1e-5, atol=1e-6)


def test_faults():
    node = NODE | {"momentum": 1.0, "iterations": 0, "other": {"name": "adamw", "lr": 0}}
    assert messages(OPTIMIZERS.faults(node, "optim", Context())) == [
        "optim.other.lr: must be above 0; got 0. Try 1e-3.",
        "optim.momentum: must be at least 0 and below 1; got 1.0.",
        "optim.iterations: must be at least 1; got 0.",
    ]
