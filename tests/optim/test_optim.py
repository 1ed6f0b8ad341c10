"""Which parameters decay, and that our AdamW is the published one."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.optim import OPTIMIZERS, create_optimizer, parameter_groups
from xformer_kit.registry import Context
from xformer_kit.tensors import vector

ADAMW = {"name": "adamw"}


class Table(nn.Module):
    """A component with a matrix that must not shrink."""

    parameter_info = {"bias_table": vector("3", "2", decays=False)}

    def __init__(self):
        super().__init__()
        self.bias_table = nn.Parameter(torch.ones(3, 2))
        self.weight = nn.Parameter(torch.ones(3, 2))


class Small(nn.Module):
    """Matrices, vectors, a scalar, a tied head, a frozen matrix and an exempted one."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.norm = nn.LayerNorm(5)
        self.scale = nn.Parameter(torch.ones(()))
        self.ffn = nn.Linear(5, 5)
        self.table = Table()
        self.fixed = nn.Linear(5, 5, bias=False).requires_grad_(False)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight


def names(group):
    return [name for name, _ in group["params"]]


def test_only_matrices_decay_each_once_in_the_order_of_the_model():
    matrices, rest = parameter_groups(Small(), 0.3)
    assert (matrices["weight_decay"], rest["weight_decay"]) == (0.3, 0.0)
    assert names(matrices) == ["embed.weight", "ffn.weight", "table.weight"]
    assert names(rest) == ["scale", "norm.weight", "norm.bias", "ffn.bias", "table.bias_table"]


def test_every_trained_parameter_is_in_exactly_one_group():
    model = Small()
    grouped = [id(p) for group in parameter_groups(model, 0.1) for _, p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters() if p.requires_grad)


def test_a_root_module_may_exempt_its_own():
    assert names(parameter_groups(Table(), 0.1)[1]) == ["bias_table"]


def test_an_empty_group_is_left_out():
    (only,) = parameter_groups(nn.Linear(3, 2, bias=False), 0.1)
    assert names(only) == ["weight"]


def published(p, gradients, lr, betas, eps, decay):
    """Loshchilov and Hutter, 2019, algorithm 2, with their schedule multiplier folded into lr as
    torch has it.
    """
    m = v = torch.zeros_like(p)
    for t, g in enumerate(gradients, start=1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        p = (
            p
            - lr * decay * p
            - lr * (m / (1 - betas[0] ** t)) / ((v / (1 - betas[1] ** t)).sqrt() + eps)
        )
    return p


@pytest.mark.parametrize("fused", [None, False])
def test_adamw_is_the_published_algorithm(fused):
    torch.manual_seed(0)
    model = nn.Linear(5, 3).double()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients = {
        name: torch.randn(4, *p.shape, dtype=p.dtype) for name, p in model.named_parameters()
    }
    node = {"name": "adamw", "lr": 0.1, "weight_decay": 0.2, "betas": [0.8, 0.95], "eps": 1e-6}
    optimizer = create_optimizer(node, model, fused=fused)
    for i in range(4):
        for name, p in model.named_parameters():
            p.grad = gradients[name][i].clone()
        optimizer.step()
    for name, decay in (("weight", 0.2), ("bias", 0.0)):
        right = published(start[name], gradients[name], 0.1, (0.8, 0.95), 1e-6, decay)
        assert_close(model.get_parameter(name).detach(), right)


def test_the_fused_step_is_taken_where_it_can_be_and_left_where_the_caller_says():
    model = nn.Linear(3, 2)
    assert create_optimizer(ADAMW, model).defaults["fused"] is True
    assert create_optimizer(ADAMW, model, fused=False).defaults["fused"] is False
    assert create_optimizer(ADAMW, nn.Linear(3, 2, device="meta")).defaults["fused"] is False


def test_the_state_survives_a_checkpoint_bit_for_bit(tmp_path):
    def stepped(model, optimizer, seed):
        torch.manual_seed(seed)
        optimizer.zero_grad()
        model(torch.randn(4, 5)).square().sum().backward()
        optimizer.step()

    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    optimizer = create_optimizer(ADAMW, model)
    stepped(model, optimizer, 1)
    torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "last.ckpt")
    other = nn.Linear(5, 3)
    resumed = create_optimizer(ADAMW, other)
    weights, state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    other.load_state_dict(weights)
    resumed.load_state_dict(state)
    assert [g["param_names"] for g in state["param_groups"]] == [["weight"], ["bias"]]
    stepped(model, optimizer, 2)
    stepped(other, resumed, 2)
    assert torch.equal(model.weight, other.weight)
    assert torch.equal(model.bias, other.bias)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"lr": -1}, "optim.lr: must be above 0; got -1. Try 1e-3."),
        ({"lr": 0.0}, "optim.lr: must be above 0; got 0.0. Try 1e-3."),
        ({"lr": float("nan")}, "optim.lr: must be a finite number; got nan. Try 0.002."),
        ({"eps": 0.0}, "optim.eps: must be above 0; got 0.0. Try 1e-8."),
        (
            {"weight_decay": -0.1},
            "optim.weight_decay: must be at least 0; got -0.1.",
        ),
        (
            {"betas": [0.9, 1.0]},
            "optim.betas[1]: must be at least 0 and below 1; got 1.0. Try 0.99.",
        ),
        ({"betas": [0.9]}, "optim.betas: must be a list of 2 values; got [0.9]. Try [0.9,0.99]."),
        (
            {"momentum": 0.9},
            (
                "optim.momentum: optim 'adamw' has no option 'momentum'. It has: lr, weight_decay,"
                " betas, eps, groups, layer_decay. Try optim=sgd or optim=muon."
            ),
        ),
        (
            {"name": "adamz"},
            "optim: no optim is called 'adamz'. Did you mean 'adam'? Known: adafactor, adam, adamw,"
            " adamw_8bit, lion, muon, schedule_free, sgd, soap.",
        ),
    ],
)
def test_faults(options, fault):
    assert messages(OPTIMIZERS.faults({"name": "adamw"} | options, "optim", Context())) == [fault]


def test_a_learning_rate_is_a_number():
    (fault,) = messages(OPTIMIZERS.faults({"name": "adamw", "lr": "abc"}, "optim", Context()))
    assert fault.startswith("optim.lr: must be ")


def test_the_defaults_are_sound():
    node = OPTIMIZERS.defaults("adamw")
    assert node == {
        "name": "adamw",
        "lr": 2e-3,
        "weight_decay": 0.1,
        "betas": [0.9, 0.99],
        "eps": 1e-8,
        "groups": None,
        "layer_decay": 1.0,
    }
    assert not messages(OPTIMIZERS.faults(node, "optim", Context()))
    assert all(option.meaning for option in OPTIMIZERS.options("adamw").values())
