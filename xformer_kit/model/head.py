"""What is said of a hidden state? One logit for each token of the vocabulary."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.model.fused_projections import FusedProjections, laid
from xformer_kit.model.loss import cross_entropies, cross_entropy


class Shape(NamedTuple):
    """What becomes of the logits: softcap tanh(scale (hidden W^T + b) / softcap). A learned scale
    is the head's.
    """

    scale: float | Literal["learned"] = 1.0
    softcap: float | None = None  # None: no bound

    def __call__(self, logits: Tensor) -> Tensor:
        if isinstance(self.scale, float) and self.scale != 1.0:
            logits = logits * self.scale
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)


PLAIN = Shape()


class Head(nn.Module):
    """hidden W^T + b: one logit per token of the vocabulary.

    Rows that round the vocabulary up to `model.vocab_multiple` live in the weight alone: no logit
    of theirs is computed. `transform` stands in front of it; there is a bias with `bias`; `shape`
    scales and bounds the logits. A learned scale has a factor s for each token, 1 at the start,
    stored as s / sqrt(dim), so that Adam moves it sqrt(dim) times as fast as other weights (nGPT:
    Loshchilov et al., 2024, arXiv:2410.01131, eq. 3 and section 2.5).
    """

    weight: Tensor
    packed: FusedProjections | None = None  # while a text is generated

    def __init__(
        self,
        weight: nn.Parameter,
        vocab_size: int,
        bias: bool = False,
        transform: nn.Module | None = None,
        shape: Shape = PLAIN,
    ):
        super().__init__()
        self.weight = weight  # (vocab_size rounded up, dim)
        self._rest(vocab_size, bias, transform, shape)

    def _rest(self, vocab_size: int, bias: bool, transform: nn.Module | None, shape: Shape) -> None:
        self.vocab_size, self.shape = vocab_size, shape
        self.bias = nn.Parameter(torch.zeros(self.weight.shape[0])) if bias else None
        self.transform = transform
        rows, dim = self.weight.shape
        self.root = math.sqrt(dim)
        self.scales = (
            nn.Parameter(torch.full((rows,), dim**-0.5)) if shape.scale == "learned" else None
        )

    def forward(
        self,
        hidden: Tensor,
        target: Tensor | None = None,
        label_smoothing: float = 0.0,
        z_loss: float = 0.0,
        scale: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """hidden (b, t, dim) -> logits (b, t, vocab); with target (b, t), the sum of the
        cross-entropies in nats over targets that are not negative, computed in chunks so that all
        logits never exist at once (see `loss.py`, also for label_smoothing and z_loss). With scale
        (n,) also those of n streams at once, hidden (n, b, t, dim) and target (n, b, t): the sum of
        theirs, each times its scale, and the n sums themselves.
        """
        if self.transform is not None:
            hidden = self.transform(hidden)
        if target is not None:
            return self._loss(hidden, target, scale, label_smoothing, z_loss)
        if self.packed is not None:
            return self.shape(self.packed(hidden)[0])
        return self.shape(F.linear(hidden, *self._shown()))

    def _loss(
        self,
        hidden: Tensor,
        target: Tensor,
        scale: Tensor | None,
        label_smoothing: float,
        z_loss: float,
    ) -> Tensor | tuple[Tensor, Tensor]:
        bias: Tensor | None = self.bias
        factor, softcap = self.shape
        weight, bias = self._scaled(self.weight, bias)
        if (
            isinstance(factor, float) and factor != 1.0
        ):  # of the narrow side, in place of the logits
            hidden, bias = hidden * factor, None if bias is None else bias * factor
        terms = {"label_smoothing": label_smoothing, "z_loss": z_loss, "softcap": softcap}
        if scale is not None:
            return cross_entropies(hidden, weight, target, scale, bias, self.vocab_size, **terms)
        return cross_entropy(hidden, weight, target, bias, self.vocab_size, **terms)

    def _shown(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias without the rows that round the vocabulary up."""
        weight, bias = self._scaled(self.weight, self.bias)
        vocab = self.vocab_size
        if weight.shape[0] == vocab:
            return weight, bias
        return weight[:vocab], None if bias is None else bias[:vocab]

    def _scaled(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Both with what is learned of the logits' scale."""
        if self.scales is None:
            return weight, bias
        factor = self.root * self.scales
        return weight * factor[:, None], None if bias is None else bias * factor

    def pack(self, rows: int) -> FusedProjections | None:
        """The fastest product for `rows` texts that are generated; None where the weight is sharded
        or was replaced.
        """
        if type(self.weight) is not nn.Parameter:
            return None
        return laid(*self._shown(), [self.vocab_size], rows, strided=True)


class TiedHead(Head):
    """The same with the embedding's weight, which is looked up, not held: one storage and one name,
    whatever moves it.
    """

    def __init__(
        self,
        embed: nn.Embedding,
        vocab_size: int,
        bias: bool = False,
        transform: nn.Module | None = None,
        shape: Shape = PLAIN,
    ):
        nn.Module.__init__(self)
        self.__dict__["embed"] = embed  # past nn.Module, which would register it
        self._rest(vocab_size, bias, transform, shape)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self.__dict__["embed"].weight


class Transform(nn.Module):
    """norm(gelu(x W + b)) (Devlin et al., 2019, arXiv:1810.04805, the released masked-token head),
    to the channels of the embeddings (ALBERT).
    """

    def __init__(self, dim: int, read: int, norm: Callable[[], nn.Module]):
        super().__init__()
        self.dense = nn.Linear(dim, read)
        self.norm = norm()

    def forward(self, hidden: Tensor) -> Tensor:
        return self.norm(F.gelu(self.dense(hidden)))
