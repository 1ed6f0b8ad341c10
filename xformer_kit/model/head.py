"""The head: hidden states -> one logit per token of the vocabulary."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.model.loss import UNCOMPILED, LossFunctions, cross_entropy
from xformer_kit.tensors.fused_projections import FusedProjections, fused_projection


class LogitScaling(NamedTuple):
    """Scale and bound of logits l = hidden W^T + b: softcap tanh(scale l / softcap).

    A call with logits applies both, but not a learned scale: its parameter belongs to the head,
    which multiplies by it before the call.
    """

    scale: float | Literal["learned"] = 1.0
    softcap: float | None = None  # None: no bound

    @property
    def factor(self) -> float:
        """The constant factor on logits; 1 if the scale is learned."""
        return 1.0 if isinstance(self.scale, str) else self.scale

    def __call__(self, logits: Tensor) -> Tensor:
        if self.factor != 1.0:
            logits = logits * self.factor
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)


UNSCALED = LogitScaling()


class Head(nn.Module):
    """hidden W^T + b: one logit per token of the vocabulary.

    weight: (vocab_size rounded up to `model.vocab_multiple`, dim). The additional rows have no
    logits. bias: whether there is a bias; a fixed one is a buffer, initially 0. transform: applied
    to hidden states before the projection. logit_scaling: scale and bound of the logits.

    A learned scale has a factor s per token, initially 1, stored as s / sqrt(dim), so that Adam
    changes it sqrt(dim) times as fast as other weights (nGPT: Loshchilov et al., 2024,
    arXiv:2410.01131, eq. 3 and section 2.5).
    """

    weight: Tensor
    fused_maps: FusedProjections | None = None  # set during generation
    loss_functions: LossFunctions = UNCOMPILED  # set by `compile_blocks`

    def __init__(
        self,
        weight: nn.Parameter | nn.Embedding,
        vocab_size: int,
        bias: bool | Literal["fixed"] = False,
        transform: nn.Module | None = None,
        logit_scaling: LogitScaling = UNSCALED,
    ):
        super().__init__()
        self._set_weight(weight)
        self.vocab_size = vocab_size
        self.logit_scaling = logit_scaling
        self.bias: Tensor | None
        if bias == "fixed":
            self.register_buffer("bias", torch.zeros(self.weight.shape[0]))
        else:
            self.bias = nn.Parameter(torch.zeros(self.weight.shape[0])) if bias else None
        self.transform = transform
        rows, dim = self.weight.shape
        self.root_dim = math.sqrt(dim)
        self.scales = (
            nn.Parameter(torch.full((rows,), dim**-0.5))
            if logit_scaling.scale == "learned"
            else None
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without compiled functions, which cannot be pickled, as `Module.compile`."""
        state = super().__getstate__()  # type: ignore[misc]
        state.pop("loss_functions", None)
        return state

    def _set_weight(self, weight: Any) -> None:
        self.weight = weight  # (vocab_size rounded up, dim)

    def forward(
        self,
        hidden: Tensor,
        target: Tensor | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        scale: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Returns logits (b, t, vocab) of hidden states (b, t, dim).

        With target (b, t): returns the sum of the cross-entropies in nats over targets that are not
        negative, of all logits at once or in chunks (see `loss.py`, also for label_smoothing and
        z_loss).
        With target (n, b, t), hidden (n, b, t, dim) and scale (n,): returns the sum of the n
        losses, each times its scale, and the n losses.
        """
        if self.transform is not None:
            hidden = self.transform(hidden)
        if target is not None:
            return self._loss(hidden, target, scale, label_smoothing, z_loss)
        if self.fused_maps is not None:
            return self.logit_scaling(self.fused_maps(hidden)[0])
        return self.logit_scaling(F.linear(hidden, *self._vocab_rows()))

    def _loss(
        self,
        hidden: Tensor,
        target: Tensor,
        scale: Tensor | None,
        label_smoothing: float,
        z_loss: float,
    ) -> Tensor | tuple[Tensor, Tensor]:
        factor, softcap = self.logit_scaling.factor, self.logit_scaling.softcap
        weight, bias = self._apply_scale()
        if factor != 1.0:  # scales fewer numbers than the logits
            hidden, bias = hidden * factor, None if bias is None else bias * factor
        return cross_entropy(
            hidden,
            weight,
            target,
            bias,
            self.vocab_size,
            scale,
            label_smoothing=label_smoothing,
            z_loss=z_loss,
            softcap=softcap,
            functions=self.loss_functions,
        )

    def _vocab_rows(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias without the rows after the vocabulary."""
        weight, bias = self._apply_scale()
        vocab = self.vocab_size
        if weight.shape[0] == vocab:
            return weight, bias
        return weight[:vocab], None if bias is None else bias[:vocab]

    def _apply_scale(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias, times the learned scale of the logits if there is one."""
        weight, bias = self.weight, self.bias
        if self.scales is None:
            return weight, bias
        factor = self.root_dim * self.scales
        return weight * factor[:, None], None if bias is None else bias * factor

    def fuse(self, rows: int) -> FusedProjections | None:
        """The fastest projection for generating `rows` texts; None if the weight is sharded or
        replaced.
        """
        if type(self.weight) is not nn.Parameter:
            return None
        return fused_projection(*self._vocab_rows(), [self.vocab_size], rows, strided=True)


class TiedHead(Head):
    """A head with an embedding's weight, for which it takes the embedding in place of `weight`. It
    reads the weight from the embedding at each access, so that there is one parameter with one
    name, also after `to`, `fully_shard` or a replacement.
    """

    def _set_weight(self, weight: nn.Embedding) -> None:
        self.__dict__["embed"] = weight  # not registered as a submodule

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self.__dict__["embed"].weight


class Transform(nn.Module):
    """norm(gelu(x W + b)) (Devlin et al., 2019, arXiv:1810.04805, the released masked-token head).

    embed_dim: channels of its output, those of the embeddings (ALBERT). activation: in place of
    gelu. bias: whether there is b (not in ModernBERT).
    """

    def __init__(
        self,
        dim: int,
        embed_dim: int,
        norm: Callable[[], nn.Module],
        activation: Callable[[Tensor], Tensor] = F.gelu,
        bias: bool = True,
    ):
        super().__init__()
        self.dense = nn.Linear(dim, embed_dim, bias)
        self.norm = norm()
        self.activation = activation

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (..., dim) -> (..., embed_dim)."""
        return self.norm(self.activation(self.dense(hidden)))
