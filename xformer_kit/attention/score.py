"""What becomes of scores? The weights with which values are summed.

A score is a part of an attention: attn.score.name=entmax attn.score.alpha=1.5. Kernels compute
softmax alone, where they do not say otherwise; `reference` computes every one.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.attention.entmax import entmax
from xformer_kit.model.tokens import View
from xformer_kit.registry import Context, Registry, above


class Score(nn.Module):
    """Base of all scores: override `weights`, and `before` or `behind` where something is done
    outside of the mask.

    keeps: the class of the cache, where an attention with this score keeps more of the past than
    keys and values.
    across: whether it takes something of an earlier layer.
    sparse: whether a key that is seen may have a weight of exactly 0, and with it no gradient.
    """

    keeps: type | None = None
    across = False
    sparse = False

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
    def cannot(cls, context: Context) -> str | None:
        """Why it has no meaning in a composition, or None."""
        return None

    @classmethod
    def vain(cls, options: Mapping[str, Any], context: Context) -> Iterator[tuple[str, str]]:
        """Options that change nothing in a composition, each with the reason and the way out;
        `name` is the score itself.
        """
        yield from ()

    def of(self, view: View, cache: Any) -> Callable[[Tensor, Tensor | None], Tensor]:
        """What `forward` is in one call of an attention, for scores that depend on more than the
        row: on the tokens, on what earlier calls left in `cache`, the attention's own, or on what
        layers before it left in `view.memo`.
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
            yield (
                "plus_one: is a sink whose score is 0, and beside sinks=true there is one that is"
                " learned; choose one."
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


@SCORES.register("entmax", also_called=("sparsemax", "entmax15", "alpha_entmax"))
class Entmax(Score):
    """[(alpha - 1) s_j - tau]_+^(1 / (alpha - 1)), with the tau at which weights sum to 1: weights
    that may be exactly 0 (Peters et al., 2019, arXiv:1905.05702, section 3). alpha near 1 is
    softmax, 2 is sparsemax; 1.5 and 2 are exact, by sorting (algorithm 2), others by bisection
    (algorithm 1).
    """

    sparse = True

    def __init__(
        self,
        *,
        alpha: float = 1.5,  # above 1; the larger, the fewer keys have weight
    ):
        super().__init__()
        self.alpha = alpha

    @classmethod
    def check(cls, options, context):
        yield from above(options, "At 1 it is softmax: attn.score.name=softmax.", alpha=1)

    @classmethod
    def beyond(cls, options):
        return "entmax"

    def weights(self, scores):
        return entmax(scores, self.alpha)


@SCORES.register("top_k", also_called=("topk", "sparse_topk", "explicit_sparse"))
class TopK(Score):
    """softmax of the k largest scores of a row; the others have no weight (Zhao et al., 2019,
    arXiv:1912.11637). A row that sees k keys or fewer is softmax.
    """

    sparse = True

    def __init__(
        self,
        *,
        k: int = 8,  # keys that have weight, at least 2
    ):
        super().__init__()
        self.k = k

    @classmethod
    def check(cls, options, context):
        if options.k < 2:
            yield (
                f"k: must be at least 2 keys; got {options.k}. One key alone always has weight 1,"
                " so that queries and keys would not learn; attn.score.name=hard learns as softmax"
                " does."
            )

    @classmethod
    def beyond(cls, options):
        return "top_k"

    def weights(self, scores):
        return scores.masked_fill(~largest(scores, self.k), -float("inf")).softmax(-1)


@SCORES.register("hard", also_called=("hardmax", "one_hot", "saturated"))
class Hard(Score):
    """1 / m for each of the m largest scores of a row, which is one but for ties, and nothing for
    the others (saturated
    attention: Merrill et al., 2022, arXiv:2106.16213); the gradient is that of softmax (a
    straight-through estimator: Bengio et al., 2013, arXiv:1308.3432).
    """

    @classmethod
    def beyond(cls, options):
        return "hard"

    def __init__(self):
        super().__init__()

    def weights(self, scores):
        return straight_through(scores, scores.softmax(-1))


@SCORES.register("gumbel", also_called=("gumbel_softmax", "drawn"))
class Gumbel(Score):
    """One key, drawn with the probabilities softmax(s) in training, and the likeliest outside of
    it.

    It is the largest of s + g, g = -log(-log u) with u uniform in (0, 1), with the gradient of
    softmax((s + g) / temperature) (straight-through Gumbel-softmax: Jang et al., 2016,
    arXiv:1611.01144, section 2.2). Outside of training nothing is drawn: g = 0.
    """

    # x-transformers draws outside of training too.

    def __init__(
        self,
        *,
        temperature: float = 1.0,  # the lower, the nearer is what has the gradient to one key
        hard: bool = True,  # whether one key has all weight; false: softmax((s + g) / temperature)
    ):
        super().__init__()
        self.temperature = temperature
        self.hard = hard

    @classmethod
    def check(cls, options, context):
        yield from above(options, temperature=0)

    @classmethod
    def beyond(cls, options):
        return "gumbel"

    def weights(self, scores):
        if self.training:
            exact = scores if scores.dtype == torch.float64 else scores.float()
            scores = scores - torch.empty_like(exact).exponential_().log().to(scores.dtype)
        soft = (scores / self.temperature).softmax(-1)
        return straight_through(scores, soft) if self.hard else soft


@SCORES.register("cog", also_called=("cog_attention", "signed"))
class Cog(Score):
    """sign(s_j) softmax(|s|)_j: a key may be taken away from what a query gathers (Cog attention:
    Lv et al., 2024, arXiv:2411.07176). The size of a score says how much a key matters, so that a
    bias far below 0, as of distant keys with alibi, does not hide one.
    """

    @classmethod
    def beyond(cls, options):
        return "cog"

    @classmethod
    def signed(cls, options):
        return True

    def __init__(self):
        super().__init__()

    def weights(self, scores):
        hidden = scores == -float("inf")
        scores = scores.masked_fill(hidden, 0)
        return scores.sign() * scores.abs().masked_fill(hidden, -float("inf")).softmax(-1)


@SCORES.register("relu2", also_called=("relu_squared", "squared_relu"))
class ReLU2(Score):
    """relu(s_j)^2 / n, with n the number of keys that the query sees (Hua et al., 2022,
    arXiv:2202.10447; divided by the length as in Wortsman et al., 2023, arXiv:2309.08586, section
    3).
    """

    sparse = True

    @classmethod
    def beyond(cls, options):
        return "relu2"

    def __init__(self):
        super().__init__()

    def weights(self, scores):
        return scores.relu().square() / counted(scores)


@SCORES.register("talking_heads", also_called=("talking", "th"))
class TalkingHeads(Score):
    """softmax(s P) W: heads are mixed before the softmax and behind it, each by a matrix (heads,
    heads) that starts at the identity (Shazeer et al., 2020, arXiv:2003.02436). scaled: weights are
    multiplied by s M, scores that a third matrix mixes, as in x-transformers
    (attn_pre_scale_post_talking_heads).
    """

    def __init__(
        self,
        heads: int,
        *,
        logits: bool = True,  # whether scores are mixed
        probabilities: bool = True,  # whether weights are mixed
        scaled: bool = False,  # whether weights are multiplied by mixed scores
    ):
        super().__init__()
        self.logits = nn.Parameter(torch.eye(heads)) if logits else None
        self.probabilities = nn.Parameter(torch.eye(heads)) if probabilities else None
        self.factors = nn.Parameter(torch.eye(heads)) if scaled else None

    @classmethod
    def check(cls, options, context):
        if not options.logits and not options.probabilities and not options.scaled:
            yield (
                "logits: mixes nothing where probabilities=false and scaled=false too; set one of"
                " them, or attn.score.name=softmax."
            )

    @classmethod
    def beyond(cls, options):
        return "talking_heads"

    @classmethod
    def signed(cls, options):
        return bool(options["probabilities"] or options["scaled"])

    def initial(self, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.eye(*shape)

    def forward(self, scores, seen):
        weights = super().forward(scores, seen)
        return weights if self.factors is None else weights * mixed(scores, self.factors)

    def before(self, scores):
        return scores if self.logits is None else mixed(scores, self.logits)

    def weights(self, scores):
        return scores.softmax(-1)

    def behind(self, weights):
        return weights if self.probabilities is None else mixed(weights, self.probabilities)


def mixed(x: Tensor, matrix: Tensor) -> Tensor:
    """Head j of the result is the sum over i of head i times matrix[i, j]."""
    return torch.einsum("bits,ij->bjts", x, matrix.to(x.dtype))


def straight_through(scores: Tensor, soft: Tensor) -> Tensor:
    """1 / m for each of the m largest scores of a row, with the gradient of `soft`."""
    first = largest(scores, 1).to(soft.dtype)
    return first / first.sum(-1, keepdim=True) + (
        soft - soft.detach()
    )  # the bracket is 0, and has a gradient


def counted(scores: Tensor) -> Tensor:
    """How many keys each row sees, (b, h, t, 1)."""
    return (scores > -float("inf")).sum(-1, keepdim=True).to(scores.dtype)


def largest(scores: Tensor, k: int) -> Tensor:
    """Which scores are at least the k-th largest of their row. Of those that equal it all are: no
    order of keys decides.
    """
    # Not amax where k is 1: in half precision a compiled one has other digits than the scores, and
    # may equal none of them.
    return scores >= scores.topk(min(k, scores.shape[-1]), -1).values[..., -1:]
