"""Score functions: attention weights from scores.

A score function is an option of an attention: attn.score.name=softmax attn.score.softcap=30. Most
kernels compute only softmax; `reference` computes all of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.registry import Fault, Registry, above
from xformer_kit.tensors import vector
from xformer_kit.tensors.cache import KeyValueCache
from xformer_kit.tensors.tokens import AttentionContext, masked_weights


class Score(nn.Module):
    """Base of all score functions. Override `weights`, and `before` or `after` to change scores
    before the mask is applied, or weights after it. A fault of `cannot` at `name` is one of the
    score function itself.

    cache: class of the attention's cache.
    cross_layer: whether it uses the scores of an earlier layer.
    """

    cache: type[KeyValueCache] = KeyValueCache
    cross_layer = False

    def __init__(self) -> None:
        super().__init__()

    @classmethod
    def describe(cls, options: Mapping[str, Any]) -> str | None:
        """A short description for messages, by default its name; None for plain softmax, which
        every kernel computes.
        """
        return options["name"]

    @classmethod
    def pointwise(cls, options: Mapping[str, Any]) -> bool:
        """Whether it is softmax of scores that `before` changes elementwise, which some kernels
        compute too.
        """
        return False

    @classmethod
    def signed(cls, options: Mapping[str, Any]) -> bool:
        """Whether weights may be negative."""
        return False

    def of(
        self, context: AttentionContext, cache: Any
    ) -> Callable[[Tensor, Tensor | None], Tensor]:
        """Returns the function that replaces `forward` in one call of an attention. Override it if
        weights depend on more than the row of scores: on the tokens, on the attention's `cache`,
        or on earlier layers, through `context.cross_layer_state`.
        """
        return self

    def forward(self, scores: Tensor, seen: Tensor | None) -> Tensor:
        """Scaled scores with biases (b, h, t, s) -> weights (b, h, t, s). `seen` is True where a
        query may attend to a key, and broadcasts; None: everywhere. Other weights are 0, also in
        rows without any such key.
        """
        return self.after(masked_weights(self.before(scores), seen, self.weights))

    def before(self, scores: Tensor) -> Tensor:
        """Changes scores before the mask is applied."""
        return scores

    def weights(self, scores: Tensor) -> Tensor:
        """Weights of scores, -inf for masked keys; each row has at least one that is not masked."""
        raise NotImplementedError

    def after(self, weights: Tensor) -> Tensor:
        """Changes weights, which are 0 for masked keys."""
        return weights


class ScoreArguments:
    """What an attention passes to the constructor of its score function."""

    heads: int  # query heads


SCORES = Registry("score", caller_arguments=ScoreArguments, base=Score, group="attn.score")


@SCORES.register("softmax", similar=("softcap", "sinks"))
class SoftmaxScore(Score):
    """exp(s_j) / (c + sum_k exp(s_k)) with c = 0 (Vaswani et al., 2017, arXiv:1706.03762, eq. 1).

    softcap: s is cap * tanh(s / cap) (Gemma 2, arXiv:2408.00118, section 2). sinks: c is exp(a
    learned number of the head) (gpt-oss, arXiv:2508.10925, section 2). plus_one: c = 1, so that
    all weights of a head may be near 0 (Miller, 2023, "Attention is off by one").
    """

    parameter_info = {"sink": vector("heads")}

    def __init__(
        self,
        heads: int,
        *,
        softcap: float | None = None,  # bound on the magnitude of scores; null is no bound
        # whether each head has a learned score that is added to the softmax's denominator
        sinks: bool = False,
        plus_one: bool = False,  # whether 1 is added to the sum of exponentials
    ):
        super().__init__()
        self.softcap = softcap
        self.plus_one = plus_one
        self.sink = nn.Parameter(torch.zeros(heads)) if sinks else None

    @classmethod
    def check(cls, options, context):
        yield from above(options, "null is no cap.", softcap=0)
        if options.sinks and options.plus_one:
            yield Fault(
                "plus_one",
                "is a sink with the score 0, and sinks=true adds one with a learned score",
                fix="Choose one.",
            )

    @property
    def plain(self) -> bool:
        """Whether it is plain softmax, which kernels compute themselves."""
        return self.softcap is None and self.sink is None and not self.plus_one

    @classmethod
    def describe(cls, options):
        terms = [name for name in ("softcap", "sinks", "plus_one") if options[name]]
        return f"softmax with {' and '.join(terms)}" if terms else None

    @classmethod
    def pointwise(cls, options):
        return not options["sinks"] and not options["plus_one"]

    def before(self, scores):
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def weights(self, scores):
        if self.sink is None and not self.plus_one:
            return scores.softmax(-1)
        sink = scores.new_zeros(1)
        if self.sink is not None:
            sink = self.sink.to(scores.dtype).view(-1, 1, 1)
        return torch.cat([scores, sink.expand(*scores.shape[:-1], 1)], -1).softmax(-1)[..., :-1]


@SCORES.register("sigmoid", also_called=("sigmoid_attention",))
class SigmoidScore(Score):
    """sigmoid(s_j + b): the weight of a key does not depend on other keys (Ramapuram et al., 2024,
    arXiv:2409.04431). With b = -log(n) the weights initially sum to about 1, as in softmax.
    """

    # Paper: n is the length of the texts in training.   Here: without `bias`, the number of keys
    # that the query attends to, so that the output of a row depends neither on padding nor on later
    # tokens.

    def __init__(
        self,
        *,
        # added to scores; null is minus the logarithm of the number of visible keys
        bias: float | None = None,
    ):
        super().__init__()
        self.bias = bias

    def weights(self, scores):
        if self.bias is None:
            return torch.sigmoid(scores - count_keys(scores).log())
        return torch.sigmoid(scores + self.bias)


def count_keys(scores: Tensor) -> Tensor:
    """The number of keys that are not masked in each row, (b, h, t, 1)."""
    return (scores > -float("inf")).sum(-1, keepdim=True).to(scores.dtype)
