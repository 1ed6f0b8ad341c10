"""AdamW, Adam and SGD, as torch computes them."""

from typing import Any

import torch

from xformer_kit.optim.common import beta_faults, per_input, rate_faults, uses_fused
from xformer_kit.optim.grouping import OPTIMIZERS
from xformer_kit.registry import Fault, in_range


@OPTIMIZERS.register("adamw", also_called=("adam_w", "torch.optim.AdamW"))
class AdamW(torch.optim.AdamW):
    """Adam with decoupled weight decay, which applies only to matrices.

    Loshchilov and Hutter, 2019, https://arxiv.org/abs/1711.05101, algorithm 2.

    `fused` is set by the caller: None selects torch's fused step if every parameter supports it,
    which on CPU is five times faster than the others; a loop that unscales fp16 gradients itself
    and clips them needs False.
    """

    width_divisor = staticmethod(per_input)

    def __init__(
        self,
        params: list[dict[str, Any]],
        fused: bool | None = None,
        *,
        lr: float = 2e-3,  # peak learning rate; the schedule multiplies it
        weight_decay: float = 0.1,  # factor lr * weight_decay of a matrix is subtracted per step
        betas: tuple[float, float] = (0.9, 0.99),  # decay rates of the two moment estimates
        eps: float = 1e-8,  # added to the root of the mean square
    ):
        super().__init__(
            params,
            lr=lr,
            betas=(betas[0], betas[1]),
            eps=eps,
            weight_decay=weight_decay,
            fused=uses_fused(params, fused),
        )

    @classmethod
    def check(cls, options, context):
        yield from rate_faults(options)
        yield from beta_faults(options, (0.9, 0.99))


@OPTIMIZERS.register("adam", also_called=("torch.optim.Adam",))
class Adam(torch.optim.Adam):
    """Adam, with weight decay as a part of the gradient: g + weight_decay w.

    Kingma and Ba, 2015, https://arxiv.org/abs/1412.6980, algorithm 1.
    """

    width_divisor = staticmethod(per_input)

    def __init__(
        self,
        params: list[dict[str, Any]],
        fused: bool | None = None,
        *,
        lr: float = 2e-3,  # peak learning rate; the schedule multiplies it
        weight_decay: float = 0.0,  # of matrices, times the weight, added to the gradient
        betas: tuple[float, float] = (0.9, 0.99),  # decay rates of the two moment estimates
        eps: float = 1e-8,  # added to the root of the mean square
    ):
        super().__init__(
            params,
            lr=lr,
            betas=(betas[0], betas[1]),
            eps=eps,
            weight_decay=weight_decay,
            fused=uses_fused(params, fused),
        )

    @classmethod
    def check(cls, options, context):
        yield from rate_faults(options)
        yield from beta_faults(options, (0.9, 0.99))


@OPTIMIZERS.register("sgd", also_called=("momentum", "torch.optim.SGD"), similar=("nesterov",))
class SGD(torch.optim.SGD):
    """w - lr m with m <- momentum m + g + weight_decay w.

    Sutskever et al., 2013, https://proceedings.mlr.press/v28/sutskever13.html, for momentum.
    """

    def __init__(
        self,
        params: list[dict[str, Any]],
        fused: bool | None = None,
        *,
        lr: float = 0.1,  # peak learning rate; the schedule multiplies it
        weight_decay: float = 0.0,  # of matrices, times the weight, added to the gradient
        momentum: float = 0.9,  # share of the old momentum that is kept
        nesterov: bool = False,  # whether the gradient is added to the momentum once more
    ):
        super().__init__(
            params,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            nesterov=nesterov,
            fused=uses_fused(params, fused, of_parts=False),
        )

    @classmethod
    def check(cls, options, context):
        yield from rate_faults(options, "Try 0.1.")
        yield from in_range(options, momentum=(0, 1))
        if options.nesterov and not options.momentum:
            fix = "Set optim.momentum, such as 0.9."
            yield Fault("nesterov", "needs momentum, which is 0", got="true", fix=fix)
