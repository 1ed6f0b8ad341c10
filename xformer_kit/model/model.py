"""The model: embeddings, one or two stacks, and a head that computes logits.

Only a decoder: a language model. Only an encoder: a BERT-like model. Both: sequence to sequence.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.model.call_inputs import (
    check_length,
    check_vocabulary,
    refuse_arguments,
    tokens_of,
    without_ids,
)
from xformer_kit.model.generation_cache import GenerationCache
from xformer_kit.model.head import Head
from xformer_kit.model.stack import Stack
from xformer_kit.model.stack_cache import empty_cache
from xformer_kit.registry import config_error
from xformer_kit.tensors import (
    Info,
    ParameterInfo,
    SubmoduleInfo,
    embedding,
    hidden,
    vector,
)
from xformer_kit.tensors.ids import checked_ids, table_rows
from xformer_kit.tensors.report import ENCODER_LOSS, Report, add, by_owner, figures
from xformer_kit.tensors.tokens import Tokens


class Encoded(NamedTuple):
    """An encoder's output, to which a decoder attends."""

    hidden: Tensor  # (b, s, dim)
    tokens: Tokens

    def select(self, rows: Tensor) -> "Encoded":
        """These rows of the batch, in this order (beam search)."""
        return Encoded(self.hidden[rows], self.tokens.select(rows))


class Model(nn.Module):
    """A transformer with one or two stacks. Example of a parameter: `decoder.3.attn.q.weight`.

    dim: channels of the residual stream.
    vocab_size: number of logits. source_vocab_size: number of ids of the encoder's tokens.
    embed: embedding of the decoder's tokens, or of the encoder's if there is no decoder.
    source_embed: embedding of the source's tokens; None if `embed` is used for both.
    token_type: embedding of `segment`, added to the tokens'; None if there is none.
    stacks: name -> stack; the head reads the last one's output.
    head: returns the head for an embedding, with which it may share its weight.
    embed_scale: factor on embeddings. dropout: probability, on embeddings.

    Attribute predictions: the tokens that extras predict in training in addition to the next one.
    Attribute has_losses: whether modules add losses in training.
    """

    width_ratio: float = 1.0  # model.dim / model.base_dim with muP
    encoder: Stack  # of the stacks that it has
    decoder: Stack

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
        self.predictions = [prediction for extra in extras for prediction in extra.predictions]
        self.head = head(embed)
        self.has_losses = any(getattr(module, "adds_loss", False) for module in self.modules())
        self.parameter_info = self._parameter_info(embed.embedding_dim, self.head.weight.shape[1])

    def _parameter_info(self, embed_dim: int, head_dim: int) -> dict[str, Info]:
        """Descriptions of the embeddings and the head. embed_dim, head_dim: channels of both."""
        embedded, read = ("dim" if n == self.dim else "embed_dim" for n in (embed_dim, head_dim))
        return {
            "embed": embedding("vocab", embedded),
            "source_embed": embedding("source_vocab", embedded),
            "token_type": embedding("types", embedded),
            "head.weight": ParameterInfo("head", ("vocab", read)),
            "head.bias": vector("vocab", bias=True),
            "head.scales": vector("vocab"),
            "head.transform": hidden(read, "dim"),
            "head.transform.dense": hidden(read, "dim"),
            "head.transform.norm": SubmoduleInfo({"normalised": read}),
        }

    def constrain(self) -> None:
        """Applies the extras' constraints to the parameters, initially and after each step."""
        for extra in self.stack.extra.values():
            extra.constrain(self)  # type: ignore[operator]

    @property
    def stack(self) -> Stack:
        """The stack whose output the head reads."""
        return self._modules[self.names[-1]]  # type: ignore[return-value]

    @property
    def two_stacks(self) -> bool:
        """Whether there are an encoder and a decoder."""
        return len(self.names) > 1

    @property
    def max_seq_len(self) -> int | None:
        """Longest sequence that the output stack supports; None if unlimited."""
        return self.stack.max_seq_len

    def encode(self, source: Tokens) -> tuple[Encoded, Report]:
        """Returns the encoder's output for source tokens (b, s), and the reports of its modules."""
        encoder: Stack = self._modules["encoder"]  # type: ignore[assignment]
        table = self.embed if self.source_embed is None else self.source_embed
        if self.stack.max_source_len is not None:
            check_length(source, None, self.stack.max_source_len, "source")
        order = encoder.order_without_gaps(source)
        tokens, x = self._embed(source, encoder, table, None, "source", order)
        x, stack_report = encoder(x, tokens)
        report: Report = {}
        add(report, stack_report, "encoder")
        if order is None:
            return Encoded(x, tokens), report
        tokens = tokens.reordered(order.argsort(-1)).with_positions()
        return Encoded(_restored(x, order), tokens), report

    def hidden(
        self,
        tokens: Tokens | Tensor | None = None,
        cache: GenerationCache | None = None,
        source: Tokens | Tensor | Encoded | None = None,
        multi_token: bool = False,
        inputs_embeds: Tensor | None = None,
    ) -> tuple[Tensor, Report]:
        """Returns hidden states (b, t, dim), the input of the head, for tokens or ids (b, t) after
        those in `cache`, and the reports of all modules.

        With two stacks `tokens` are the decoder's and `source` the encoder's, or its output.
        inputs_embeds: as in `forward`.
        multi_token: only in training; returns (1 + n, b, t, dim), the states that predict the next
            token, followed by those of the n `predictions`.
        """
        report: Report = {}
        tokens = self._tokens(tokens, inputs_embeds)
        if isinstance(source, Tensor):
            source = self._source(source, None, len(tokens.ids))
        if self.two_stacks and source is None:
            raise config_error(
                "source",
                "must be given to a model of two stacks",
                fix="Call model(source=..., target=...).",
            )
        if isinstance(source, Tokens):
            source, report = self.encode(source)
            if "loss" in report:
                report[ENCODER_LOSS] = report["loss"]
        if cache is None:
            return self._output(tokens, None, source, report, multi_token, inputs_embeds)
        cache.check(tokens.ids, 0 if source is None else source.tokens.length)
        with cache.unchanged_if_refused():
            cache.embedded |= inputs_embeds is not None
            if self.stack.needs_recompute(cache, tokens):
                return self._recompute(tokens, cache, source)
            return self._output(tokens, cache, source, report, multi_token, inputs_embeds)

    def _output(
        self,
        tokens: Tokens,
        cache: GenerationCache | None,
        source: Encoded | None,
        report: Report,
        multi_token: bool,
        embeds: Tensor | None,
    ) -> tuple[Tensor, Report]:
        """The same from the encoder's output and its report."""
        stack = self.stack
        order = stack.order_without_gaps(tokens) if cache is None else None
        tokens, x = self._embed(tokens, stack, self.embed, cache, "model", order, embeds)
        encoded = (None, None) if source is None else source
        run = stack if embeds is None else without_ids(stack)
        x, stack_report = run(x, tokens, cache, *encoded, multi_token)
        add(report, stack_report, self.names[-1])
        return x if order is None else _restored(x, order), report

    def _recompute(
        self, tokens: Tokens, cache: GenerationCache, source: Encoded | None
    ) -> tuple[Tensor, Report]:
        """The same if the cached keys cannot be used (`Stack.needs_recompute`): computes all tokens
        without the cache, which only records the new ones.
        """
        if cache.embedded:
            rule = "are not kept by the cache, and all tokens have to be computed again"
            raise config_error("inputs_embeds", rule, fix="Call the model without a cache.")
        new = tokens.length
        tokens = tokens.with_positions(cache.tokens)
        cache.append(tokens, self.stack.attention_groups, self.stack.breaks)
        cache.uncached += new
        x, report = self.hidden(cache.tokens, source=source)
        return x[:, -new:], report

    def _embed(
        self,
        tokens: Tokens,
        stack: Stack,
        table: nn.Embedding,
        cache: GenerationCache | None,
        name: str,
        order: Tensor | None,
        x: Tensor | None = None,
    ) -> tuple[Tokens, Tensor]:
        """Returns the tokens, in another order if one is given, with slots and positions, and their
        embeddings (b, t, dim); x: rows in place of those of the table, (b, t, embed_dim).
        """
        if order is not None:
            tokens = tokens.reordered(order)
            x = None if x is None else torch.take_along_dim(x, order[..., None], 1)
        if tokens.ids.dtype != torch.long:
            tokens = tokens._replace(ids=tokens.ids.long())
        limit = stack.max_seq_len if tokens.position is None else stack.max_attention_len
        if limit is not None:
            check_length(tokens, cache, limit, name)
        tokens = tokens.with_positions(None if cache is None else cache.tokens)
        if x is None:
            x = table_rows("ids", tokens.ids, table.weight)  # (b, t) -> (b, t, embed_dim)
        if self.embed_scale != 1.0:
            x = x * self.embed_scale
        if self.token_type is not None:
            segment = torch.zeros_like(tokens.ids) if tokens.segment is None else tokens.segment
            x = x + table_rows("segment", segment, self.token_type.weight)
        x = stack.prepare_embeddings(x, tokens)
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
        inputs_embeds: Tensor | None = None,
        **other: Any,
    ) -> Tensor:
        """Returns logits (b, t, vocab) for ids (b, t); with two stacks for source (b, s) and target
        (b, t).

        inputs_embeds: (b, t, dim), or embed_dim channels if they differ, in place of the rows of
        `embed`, without ids or with the ids, which some extras look up.
        real, source_real, target_real: False on padding, which may be anywhere in a row.
        document: number of the document in a packed row; if it returns later, another document.
        prefix: True on the tokens of a prefix, which attend to each other under mask=prefix.
        segment, position: token type; positions in place of counted ones.
        cache: keys and values of earlier tokens and of the source in the first call; those of these
        tokens are appended, with positions that continue. A call that raises leaves it unchanged.

        Each field is (b, t). Raises IndexError for an id outside the vocabulary, and ConfigError
        for arguments that are unknown, do not fit the model's stacks or have no effect, ids that
        are not integers (b, t), fields of another shape or type, and positions or token types
        outside of their tables. On a GPU values are not read: torch raises its own error for such
        rows.
        """
        refuse_arguments(self.forward, other)
        if no_ids := inputs_embeds is not None and ids is None and target is None:
            ids = self._tokens(None, inputs_embeds).ids
        ids, real = self._target_ids(ids, source, target, real, target_real)
        self._check_used(segment, prefix)
        name, real_name = ("ids", "real") if target is None else ("target", "target_real")
        fields = {"document": document, "segment": segment, "prefix": prefix, "position": position}
        ids = checked_ids(name, ids, **{real_name: real}, **fields)
        if not no_ids:
            check_vocabulary(name, ids, self.vocab_size)
        numbers = (None if n is None else n.long() for n in (position, document, segment))
        tokens = Tokens(ids, None, *numbers, prefix, real)  # type: ignore[call-arg]
        read = self._source(source, source_real, len(ids))
        return self.head(self.hidden(tokens, cache, read, inputs_embeds=inputs_embeds)[0])

    def _tokens(self, tokens: Tokens | Tensor | None, embeds: Tensor | None) -> Tokens:
        """Returns the tokens of `hidden`."""
        return tokens_of(tokens, embeds, self.embed.embedding_dim, self.vocab_size)

    def _target_ids(self, ids, source, target, real, target_real) -> tuple[Tensor, Tensor | None]:
        """Returns the ids of the output stack, from `ids` or `target`, and where they are real."""
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
                "real, target_real", "real marks the padding of ids, target_real that of target"
            )
        return (ids, real) if target is None else (target, target_real)

    def _source(self, source, real: Tensor | None, rows: int) -> Tokens | Encoded | None:
        """Returns the tokens of a source, or the encoder's output if that is given."""
        if isinstance(source, Tensor):
            source = Tokens(ids=checked_ids("source", source, source_real=real), real=real)
            check_vocabulary("source", source.ids, self.source_vocab_size)
        elif real is not None:
            rule = "marks the padding of a source that is given as ids, and there is none"
            raise config_error("source_real", rule, fix="Leave it out.")
        if source is not None and len(source[0]) not in (1, rows):  # ids, or hidden states
            rule, got = "must have a row for each target", f"{len(source[0])} and {rows} rows"
            raise config_error("source", rule, got=got)
        return source

    def _check_used(self, segment: Tensor | None, prefix: Tensor | None) -> None:
        """Raises ConfigError for fields that would have no effect."""
        if segment is not None and self.token_type is None:
            rule = "is a token type, and the model has no embedding of them"
            raise config_error("segment", rule, fix="Set model.token_types=2, or leave it out.")
        if prefix is not None and not self.stack.sees_prefix:
            rule = "marks tokens for mask=prefix, and no mask of the model distinguishes them"
            raise config_error("prefix", rule, fix="Build it with mask=prefix, or leave it out.")

    def prompt(self, ids: Tensor, real: Tensor | None = None) -> Tokens:
        """Returns the tokens (b, t) of a prompt; they are a prefix if a mask distinguishes one."""
        return Tokens(
            ids=ids,
            real=real,
            prefix=torch.ones_like(ids, dtype=torch.bool) if self.stack.sees_prefix else None,
        )

    def cache(self, rows: int, length: int, source_length: int = 0) -> GenerationCache:
        """Returns an empty cache for generating `rows` sequences of at most `length` tokens, with a
        source of `source_length` tokens.
        """
        return empty_cache(self.stack, rows, length, source_length)

    def before_steps(self) -> None:
        """Calls `before_steps` of each module. Call it if every step ends with `after_step`."""
        for module in self.modules():
            if module is not self and hasattr(module, "before_steps"):
                module.before_steps()  # type: ignore[operator]

    def after_step(self, report: Report) -> None:
        """Applies constraints, and calls `after_step` of each module that has it with the module's
        report, summed over the micro-batches and ranks of an optimizer step. Call it after each
        step.
        """
        self.constrain()
        for owner, values in by_owner(report).items():
            module = self.get_submodule(owner)
            if owner and hasattr(module, "after_step"):
                module.after_step(values)  # type: ignore[operator]

    def figures(self, report: Report) -> dict[str, float]:
        """The numbers of a report that are logged, by name."""
        return figures(self, report)

    def generate(
        self, ids: Tensor | None = None, max_new_tokens: int = 64, **options: Any
    ) -> Tensor:
        """Prompts (b, t) and their continuations (b, t + max_new_tokens); see
        `xformer_kit.generate.generate`.
        """
        from xformer_kit.generate import generate

        return generate(self, ids, max_new_tokens, **options)


def _restored(x: Tensor, order: Tensor) -> Tensor:
    """Tokens (..., b, t, dim) in an order (b, t) -> in their own."""
    return x.gather(-2, order.argsort(-1)[..., None].expand(x.shape))
