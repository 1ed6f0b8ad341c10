"""Parts -> block -> tower -> model. What the config leaves out does not exist: `decoder` alone is a language model."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.init import INITS, initialise
from xformer_kit.loss import cross_entropy
from xformer_kit.plan import towers
from xformer_kit.registry import ConfigError
from xformer_kit.tokens import Tokens
from xformer_kit.tower import Past, Report, Tower


class Head(nn.Module):
    """hidden W^T: one logit per token of the vocabulary.

    Rows that round the vocabulary up to `model.vocab_multiple` live in the weight alone: no logit of theirs is computed.
    """

    weight: Tensor

    def __init__(self, weight: nn.Parameter, vocab_size: int):
        super().__init__()
        self.weight, self.vocab_size = weight, vocab_size  # (vocab_size rounded up, dim)

    def forward(self, hidden: Tensor, target: Tensor | None = None) -> Tensor:
        """hidden (b, t, dim) -> logits (b, t, vocab); with target (b, t), the sum of the cross-entropies in nats over
        targets that are not negative, computed in chunks so that all logits never exist at once."""
        if target is not None:
            return cross_entropy(hidden, self.weight, target, vocab_size=self.vocab_size)
        weight = self.weight if self.weight.shape[0] == self.vocab_size else self.weight[: self.vocab_size]
        return F.linear(hidden, weight)


class TiedHead(Head):
    """The same with the embedding's weight, which is looked up, not held: one storage and one name, whatever moves it."""

    def __init__(self, embed: nn.Embedding, vocab_size: int):
        nn.Module.__init__(self)
        self.__dict__["embed"], self.vocab_size = embed, vocab_size  # past nn.Module, which would register it

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self.__dict__["embed"].weight


class Model(nn.Module):
    """A transformer, built from a valid config.

    vocab_size: number of logits. Parameters are named by what they are, e.g. `decoder.3.attn.q.weight`.
    """

    decoder: Tower

    def __init__(self, config: Mapping[str, Any], vocab_size: int):
        super().__init__()
        model = config["model"]
        dim, self.vocab_size = model["dim"], vocab_size
        rows = -(-vocab_size // model["vocab_multiple"]) * model["vocab_multiple"]
        self.embed = nn.Embedding(rows, dim, _weight=torch.empty(rows, dim))
        for plan in towers(config):
            self.add_module(plan.name, Tower(config, plan))
        tied = model["tie_embeddings"]
        untied = None if tied else nn.Parameter(torch.empty(rows, dim))
        self.head = TiedHead(self.embed, vocab_size) if tied else Head(untied, vocab_size)
        self.dropout = model["dropout"]
        limits: list[Any] = [p.max_len for p in self.decoder.position.values() if p.max_len is not None]
        self.longest: int | None = min(limits, default=None)  # tokens that all positions know; None: no limit
        seed = config["seed"] if model.get("seed") is None else model["seed"]
        if not self.embed.weight.is_meta:
            initialise(self, seed, INITS.create(config["init"]), self._gains())

    def _gains(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for depth, block in enumerate(self.decoder.blocks):
            found |= block.gains(f"decoder.{depth}")
        return found

    def hidden(self, tokens: Tokens, cache: Past | None = None) -> tuple[Tensor, Report]:
        """The decoder's output (b, t, dim) for tokens (b, t), and what its parts report. Goes on from `cache`."""
        if tokens.ids.dtype != torch.long:
            tokens = tokens._replace(ids=tokens.ids.long())
        if self.longest is not None:
            self._fits(tokens, cache)
        tokens = tokens.placed(None if cache is None else cache.tokens)
        x = F.embedding(tokens.ids, self.embed.weight)  # (b, t) -> (b, t, dim)
        x = self.decoder.base_position.embed(x, tokens)
        if self.dropout:
            x = F.dropout(x, self.dropout, self.training)
        x, report = self.decoder(x, tokens, cache)
        return x, {name if name == "loss" else f"decoder.{name}": value for name, value in report.items()}

    def _fits(self, tokens: Tokens, cache: Past | None) -> None:
        length = tokens.length + (0 if cache is None else cache.length)
        if tokens.position is None and length > self.longest:
            raise ConfigError(
                f"model.max_len: the model's positions end at {self.longest} tokens; got {length}. "
                "Give fewer, or build it with a larger model.max_len."
            )

    def forward(
        self,
        ids: Tensor,
        *,
        real: Tensor | None = None,
        document: Tensor | None = None,
        position: Tensor | None = None,
        cache: Past | None = None,
    ) -> Tensor:
        """ids (b, t) -> logits (b, t, vocab).

        real is False on padding; document numbers the texts of a packed row; position overrides where tokens stand. Each (b, t).
        Raises IndexError for an id outside the vocabulary, on a GPU only for one outside the rounded-up weight.
        """
        if type(ids) is Tensor and ids.is_cpu and not torch.compiler.is_compiling():
            self._knows(ids)
        hidden, _ = self.hidden(Tokens(ids=ids, real=real, document=document, position=position), cache)
        return self.head(hidden)

    def _knows(self, ids: Tensor) -> None:
        largest = int(ids.max()) if ids.numel() else -1
        if largest >= self.vocab_size:
            raise IndexError(f"ids: must be below the vocabulary's {self.vocab_size}; got {largest}.")

    def cache(self, rows: int, length: int) -> Past:
        """An empty cache for generation: `rows` sequences of at most `length` tokens."""
        return self.decoder.cache(rows, length)

    def after_step(self, report: Report) -> None:
        """Hand each part what it reported, summed over the micro-batches and ranks of an optimizer step."""
        owners: dict[str, Report] = defaultdict(dict)
        for name, value in report.items():
            owner, _, key = name.rpartition(".")
            if owner:
                owners[owner][key] = value
        for owner, said in owners.items():
            module = self.get_submodule(owner)
            if hasattr(module, "after_step"):
                module.after_step(said)  # type: ignore[operator]

    def generate(self, ids: Tensor, **options: Any) -> Tensor:
        """Prompts (b, t) and their continuations (b, t + max_new_tokens); see `xformer_kit.generate.generate`."""
        from xformer_kit.generate import generate

        return generate(self, ids, **options)
