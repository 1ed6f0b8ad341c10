"""Activations: the element-wise functions of feed-forward networks, and softmax over channels."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),  # So et al., 2021, arXiv:2109.08668
    "gelu": F.gelu,  # exact: x Phi(x) (Hendrycks and Gimpel, 2016, arXiv:1606.08415)
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "gelu_quick": lambda x: x * torch.sigmoid(1.702 * x),  # section 2 of the same
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "mish": F.mish,
    "identity": lambda x: x,
    # relu(x)^2 with mean 0 and variance 1 for normal x (Yu et al., 2022, arXiv:2210.13452)
    "star_relu": lambda x: 0.8944 * F.relu(x).square() - 0.4472,
    # (x + 2)^2 / 8 from -2 to 2, relu outside (Shamir and Lin, 2022, arXiv:2202.06499)
    "smelu": lambda x: (x + 2).clamp(0, 4).square() / 8 + F.relu(x - 2),
    # softmax over the channels of a token; its norm is inner_norm (SoLU: Elhage et al., 2022,
    # https://transformer-circuits.pub/2022/solu)
    "solu": lambda x: x * x.softmax(-1),
    # The other element-wise functions of torch.nn.functional without arguments.
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "tanhshrink": F.tanhshrink,
    "hardtanh": F.hardtanh,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "logsigmoid": F.logsigmoid,
}
if TYPE_CHECKING:
    Activation = str
else:
    Activation = Literal[tuple(ACTIVATIONS)]
