"""What becomes of scores? The weights with which values are summed.

A score is a component of an attention: attn.score.name=softmax attn.score.softcap=30. Kernels
compute softmax alone, where they do not say otherwise; `reference` computes every one.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.model.cache import KeyValueCache
from xformer_kit.model.tokens import AttentionContext
from xformer_kit.registry import Context, Fault, Options, Registry, above


class Score(nn.Module):
    """Base of all scores: override `weights`, and `before` or `behind` where something is done
    outside of the mask.

    cache: the class of the attention's cache.
    across: whether it takes something of an earlier layer.
    """

    cache: type[KeyValueCache] = KeyValueCache
    across = False

    @classmethod
    def beyond(cls, options: Mapping[str, Any]) -> str | None:
        """What it is, in a few words, where it is more than the softmax that every kernel
        computes.
        """
        raise NotImplementedError

    @classmethod
    def pointwise(cls, options: Mapping[str, Any]) -> bool:
        """Whether it is softmax of scores that `before` changes one by one, which some kernels
        compute too.
        """
        return False

    @classmethod
    def signed(cls, options: Mapping[str, Any]) -> bool:
        """Whether it may give a key a negative weight."""
        return False

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Why it has no meaning in a composition, and options without effect; `name` is the score
        itself.
        """
        yield from ()

    def of(
        self, context: AttentionContext, cache: Any
    ) -> Callable[[Tensor, Tensor | None], Tensor]:
        """What `forward` is in one call of an attention, for scores that depend on more than the
        row: on the tokens, on what earlier calls left in `cache`, the attention's own, or on what
        layers before it left in `context.memo`.
        """
        return self

    def forward(self, scores: Tensor, seen: Tensor | None) -> Tensor:
        """Scaled scores with biases (b, h, t, s) -> weights (b, h, t, s). `seen` is True where a
        query sees a key, and broadcasts; None: all do. What is not seen has no weight, and a row
        with nothing to see has none at all.
        """
        scores = self.before(scores)
        if seen is None:
            return self.behind(self.weights(scores))
        nothing = ~seen.any(
            -1, keepdim=True
        )  # such a row is left whole for finite weights, and set to zero behind them
        scores = scores.masked_fill(~(seen | nothing), -float("inf"))
        return self.behind(self.weights(scores).masked_fill(nothing, 0))

    def before(self, scores: Tensor) -> Tensor:
        """What is done with scores before the mask hides any."""
        return scores

    def weights(self, scores: Tensor) -> Tensor:
        """Weights of scores that are -inf where a key is hidden; each row has one that is not."""
        raise NotImplementedError

    def behind(self, weights: Tensor) -> Tensor:
        """What is done with weights, of which those of hidden keys are 0."""
        return weights


SCORES = Registry("score", given=("heads",), base=Score, group="attn.score")


@SCORES.register("softmax", also_called=("softcap", "sinks", "off_by_one", "softmax1"))
class Softmax(Score):
    """exp(s_j) / (c + sum_k exp(s_k)) with c = 0 (Vaswani et al., 2017, arXiv:1706.03762, eq. 1).

    softcap: s is cap * tanh(s / cap) (Gemma 2, arXiv:2408.00118, section 2). sinks: c is exp(a
    learned number of the head) (gpt-oss, arXiv:2508.10925, section 2). plus_one: c = 1, so that a
    head may look at nothing (Miller, 2023, "Attention is off by one").
    """

    def __init__(
        self,
        heads: int,
        *,
        softcap: float | None = None,  # scores stay below it, and above minus it; null is no cap
        # whether each head has a learned score that takes weight from all keys
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
                "is a sink whose score is 0, and beside sinks=true there is one that is learned",
                fix="Choose one.",
            )

    @property
    def plain(self) -> bool:
        """Whether it is softmax alone, which kernels compute by themselves."""
        return self.softcap is None and self.sink is None and not self.plus_one

    @classmethod
    def beyond(cls, options):
        said = [word for word in ("softcap", "sinks", "plus_one") if options[word]]
        return f"softmax with {' and '.join(said)}" if said else None

    @classmethod
    def pointwise(cls, options):
        return not options["sinks"] and not options["plus_one"]

    def before(self, scores):
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def weights(self, scores):
        if self.sink is None and not self.plus_one:
            return scores.softmax(-1)
        one_more = (
            scores.new_zeros(1) if self.sink is None else self.sink.to(scores.dtype).view(-1, 1, 1)
        )
        return torch.cat([scores, one_more.expand(*scores.shape[:-1], 1)], -1).softmax(-1)[..., :-1]


@SCORES.register("sigmoid", also_called=("sigmoid_attention",))
class Sigmoid(Score):
    """sigmoid(s_j + b): keys do not compete (Ramapuram et al., 2024, arXiv:2409.04431). b = -log(n)
    gives about as much weight in all as softmax does at the start.
    """

    # Paper: n is the length that a model is trained at.   Here: the number of keys that the query
    # sees, unless `bias` says otherwise, so that neither padding nor the length of a text changes
    # what a row computes.

    def __init__(
        self,
        *,
        bias: (
            float | None
            # added to scores; null is minus the logarithm of the number of keys that are seen
        ) = None,
    ):
        super().__init__()
        self.bias = bias

    @classmethod
    def beyond(cls, options):
        return "sigmoid"

    def weights(self, scores):
        return torch.sigmoid(
            scores - counted(scores).log() if self.bias is None else scores + self.bias
        )


def counted(scores: Tensor) -> Tensor:
    """How many keys each row sees, (b, h, t, 1)."""
    return (scores > -float("inf")).sum(-1, keepdim=True).to(scores.dtype)
