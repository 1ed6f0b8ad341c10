"""Tokens -> stacks -> logits. What the config leaves out does not exist: `decoder` alone is a
language model, `encoder` alone is BERT-like, both are sequence to sequence.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.model.generation_cache import GenerationCache
from xformer_kit.model.head import Head
from xformer_kit.model.report import Report, add, by_owner, figures
from xformer_kit.model.stack import Stack
from xformer_kit.model.stack_cache import empty_cache
from xformer_kit.model.tokens import Tokens, checked_ids
from xformer_kit.registry import config_error


class Encoded(NamedTuple):
    """What an encoder made of a source, for a decoder to look at."""

    hidden: Tensor  # (b, s, dim)
    tokens: Tokens

    def select(self, rows: Tensor) -> "Encoded":
        """These rows of the batch, in this order (beam search)."""
        return Encoded(self.hidden[rows], self.tokens.select(rows))


class Model(nn.Module):
    """A transformer of one or two stacks. Parameters are named by what they are, e.g.
    `decoder.3.attn.q.weight`.

    embed: of the decoder's tokens, or of the encoder's if there is no decoder. source_embed: None
    if the source is embedded by `embed`. vocab_size: number of logits; source_vocab_size: of the
    encoder's tokens. predictions: what extras predict in training in addition to the next token.
    """

    def __init__(
        self,
        dim: int,
        vocab_size: int,
        source_vocab_size: int,
        embed: nn.Embedding,
        source_embed: nn.Embedding | None,
        token_type: nn.Embedding | None,
        stacks: Mapping[str, Stack],
        head: Callable[[nn.Embedding], Head],
        embed_scale: float = 1.0,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.dim = dim
        self.vocab_size = vocab_size
        self.source_vocab_size = source_vocab_size
        self.embed_scale = embed_scale
        self.dropout = dropout
        self.embed = embed
        self.source_embed = source_embed
        self.token_type = token_type
        for name, stack in stacks.items():
            self.add_module(name, stack)
        self.names = tuple(stacks)
        extras: Any = self.stack.extra.values()
        self.predictions = [found for extra in extras for found in extra.predictions]
        self.head = head(embed)

    def constrain(self) -> None:
        """Apply the extras' constraints on parameters: at the start, and after every step."""
        for extra in self.stack.extra.values():
            extra.constrain(self)  # type: ignore[operator]

    @property
    def stack(self) -> Stack:
        """The stack whose output the head reads."""
        return self._modules[self.names[-1]]  # type: ignore[return-value]

    @property
    def two_stacks(self) -> bool:
        return len(self.names) > 1

    @property
    def longest(self) -> int | None:
        """Tokens that all positions of the stack know; None: no limit."""
        return self.stack.longest

    def encode(self, source: Tokens) -> tuple[Encoded, Report]:
        """The encoder's output for source tokens (b, s), and what its components report."""
        encoder: Stack = self._modules["encoder"]  # type: ignore[assignment]
        table = self.embed if self.source_embed is None else self.source_embed
        if self.stack.source_reach is not None:
            _fits(source, None, self.stack.source_reach, "source")
        tokens, x = self._embedded(source, encoder, table, None, "source")
        x, of_stack = encoder(x, tokens)
        report: Report = {}
        add(report, of_stack, "encoder")
        return Encoded(x, tokens), report

    def hidden(
        self,
        tokens: Tokens,
        cache: GenerationCache | None = None,
        source: Tokens | Encoded | None = None,
        further: bool = False,
    ) -> tuple[Tensor, Report]:
        """What the head reads, (b, t, dim), for tokens (b, t), and what the components report. Goes
        on from `cache`.

        In a model of two stacks `tokens` are the decoder's and `source` the encoder's, or what
        `encode` made of them. With `further`, only in training, (1 + n, b, t, dim): for the next
        token, and for the n of `predictions`.
        """
        report: Report = {}
        if self.two_stacks and source is None:
            raise config_error(
                "source",
                "must be given to a model of two stacks",
                fix="Call model(source=..., target=...).",
            )
        if isinstance(source, Tokens):
            source, report = self.encode(source)
        stack = self.stack
        if cache is not None and stack.stale(cache, tokens.length):
            return self._anew(tokens, cache, source)
        tokens, x = self._embedded(tokens, stack, self.embed, cache, "model")
        read = (None, None) if source is None else source
        x, of_stack = stack(x, tokens, cache, *read, further)
        add(report, of_stack, self.names[-1])
        return x, report

    def _anew(
        self, tokens: Tokens, cache: GenerationCache, source: Encoded | None
    ) -> tuple[Tensor, Report]:
        """The same, where what the cache holds is wrong beside the new tokens: they are read with
        all before them.
        """
        new = tokens.length
        cache.tokens = cache.tokens.then(tokens.placed(cache.tokens))  # type: ignore[union-attr]
        cache.unread += new
        x, report = self.hidden(cache.tokens, source=source)
        return x[:, -new:], report

    def _embedded(
        self,
        tokens: Tokens,
        stack: Stack,
        table: nn.Embedding,
        cache: GenerationCache | None,
        what: str,
    ) -> tuple[Tokens, Tensor]:
        """The tokens with their places, and their embeddings (b, t, dim)."""
        if tokens.ids.dtype != torch.long:
            tokens = tokens._replace(ids=tokens.ids.long())
        longest = stack.longest if tokens.position is None else stack.reach
        if longest is not None:
            _fits(tokens, cache, longest, what)
        tokens = tokens.placed(None if cache is None else cache.tokens)
        x = F.embedding(tokens.ids, table.weight)  # (b, t) -> (b, t, embed_dim)
        if self.embed_scale != 1.0:
            x = x * self.embed_scale
        if self.token_type is not None:
            segment = torch.zeros_like(tokens.ids) if tokens.segment is None else tokens.segment
            x = x + F.embedding(segment, self.token_type.weight)
        x = stack.embedded(x, tokens)
        return tokens, F.dropout(x, self.dropout, self.training) if self.dropout else x

    def forward(
        self,
        ids: Tensor | None = None,
        *,
        source: Tensor | Encoded | None = None,
        target: Tensor | None = None,
        real: Tensor | None = None,
        source_real: Tensor | None = None,
        target_real: Tensor | None = None,
        document: Tensor | None = None,
        segment: Tensor | None = None,
        prefix: Tensor | None = None,
        position: Tensor | None = None,
        cache: GenerationCache | None = None,
    ) -> Tensor:
        """ids (b, t) -> logits (b, t, vocab); with two stacks, source (b, s) and target (b, t) ->
        logits (b, t, vocab).

        real, source_real, target_real are False on padding; document numbers the texts of a packed
        row, segment the kinds of tokens; prefix is True where mask=prefix sees whole; position
        overrides where tokens stand. Each (b, t). Raises IndexError for an id outside the
        vocabulary, on a GPU only for one outside the rounded-up weight, and ConfigError for what
        the model has no stack for, for what are no ids, and for a field of another shape than
        theirs.
        """
        ids, real = self._given(ids, source, target, real, target_real)
        fields = {
            "real": real,
            "document": document,
            "segment": segment,
            "prefix": prefix,
            "position": position,
        }
        ids = checked_ids("ids", ids, **fields)
        self._knows(ids, self.vocab_size)
        if isinstance(source, Tensor):
            source = checked_ids("source", source, source_real=source_real)
            self._knows(source, self.source_vocab_size)
            source = Tokens(ids=source, real=source_real)  # type: ignore[assignment]
        tokens = Tokens(ids, None, position, document, segment, prefix, real)
        hidden, _ = self.hidden(tokens, cache, source)  # type: ignore[arg-type]
        return self.head(hidden)

    def _given(self, ids, source, target, real, target_real) -> tuple[Tensor, Tensor | None]:
        """The tokens of the stack that speaks, under either of their names."""
        if not self.two_stacks and (source is not None or target is not None):
            raise config_error(
                "source, target",
                "need an encoder and a decoder",
                fix="Give ids, or build model=encoder_decoder.",
            )
        if (ids is None) == (target is None):
            raise config_error(
                "ids", "give either ids or target, the tokens of the stack that predicts"
            )
        if (target_real if target is None else real) is not None:
            raise config_error(
                "real, target_real", "the first is the padding of ids, the second that of target"
            )
        return (ids, real) if target is None else (target, target_real)

    @staticmethod
    def _knows(ids: Tensor, size: int) -> None:
        if type(ids) is not Tensor or not ids.is_cpu or torch.compiler.is_compiling():
            return  # reading a value would wait for the device, or break the graph
        largest = int(ids.max()) if ids.numel() else -1
        if largest >= size:
            raise IndexError(f"ids: must be below the vocabulary's {size}; got {largest}.")

    def prompt(self, ids: Tensor, real: Tensor | None = None) -> Tokens:
        """Tokens (b, t) to go on from in generation: a prefix, where a mask of the stack sees one
        whole.
        """
        return Tokens(
            ids=ids,
            real=real,
            prefix=torch.ones_like(ids, dtype=torch.bool) if self.stack.sees_prefix else None,
        )

    def cache(self, rows: int, length: int, source_length: int = 0) -> GenerationCache:
        """An empty cache for generation: `rows` sequences of at most `length` tokens, beside a
        source of `source_length`.
        """
        if self.two_stacks and source_length < 1:
            raise config_error(
                "source_length",
                "must be the number of the source's tokens",
                got=source_length,
                fix="Call model.cache(rows, length, source_length).",
            )
        return empty_cache(self.stack, rows, length, source_length)

    def after_step(self, report: Report) -> None:
        """Hand each component what it reported, summed over the micro-batches and ranks of an
        optimizer step, which it has made.
        """
        self.constrain()
        for owner, said in by_owner(report).items():
            module = self.get_submodule(owner)
            if owner and hasattr(module, "after_step"):
                module.after_step(said)  # type: ignore[operator]

    def figures(self, report: Report) -> dict[str, float]:
        """The numbers of such a report that are logged."""
        return figures(self, report)

    def generate(self, ids: Tensor | None = None, **options: Any) -> Tensor:
        """Prompts (b, t) and their continuations (b, t + max_new_tokens); see
        `xformer_kit.generate.generate`.
        """
        from xformer_kit.generate import generate

        return generate(self, ids, **options)


def _fits(tokens: Tokens, cache: GenerationCache | None, longest: int, what: str) -> None:
    length = tokens.length + (0 if cache is None else cache.length)
    if length > longest:
        raise config_error(
            "model.max_len",
            f"the {what}'s positions end at {longest} tokens",
            got=length,
            fix="Give fewer, or build it with a larger model.max_len.",
        )
