"""Parts -> block -> stack -> model. What the config leaves out does not exist: `decoder` alone is a
language model, `encoder` alone is BERT-like, both are sequence to sequence.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.model.cache import Past
from xformer_kit.model.head import Head, Shape, TiedHead, Transform
from xformer_kit.model.init import INITS, initialise, unit_weights
from xformer_kit.model.stack import Report, Stack
from xformer_kit.model.tokens import Tokens, checked_ids
from xformer_kit.norm import NORMS
from xformer_kit.plan import depths, stacks
from xformer_kit.registry import ConfigError


class Encoded(NamedTuple):
    """What an encoder made of a source, for a decoder to look at."""

    hidden: Tensor  # (b, s, dim)
    tokens: Tokens

    def select(self, rows: Tensor) -> "Encoded":
        """These rows of the batch, in this order (beam search)."""
        return Encoded(self.hidden[rows], self.tokens.select(rows))


class Model(nn.Module):
    """A transformer, built from a valid config.

    vocab_size: number of logits; source_vocab_size: of the encoder's tokens, where it is another.
    Parameters are named by what they are, e.g. `decoder.3.attn.q.weight`.
    """

    embed: nn.Embedding  # of the decoder's tokens, or of the encoder's where it stands alone

    def __init__(
        self, config: Mapping[str, Any], vocab_size: int, source_vocab_size: int | None = None
    ):
        super().__init__()
        model = config["model"]
        dim = model["dim"]
        self.vocab_size = vocab_size
        self.dropout = model["dropout"]
        scale = model["embed_scale"]
        inner = model["embed_dim"] or dim  # channels of the embeddings
        self.unit_weights = model["unit_weights"]
        self.dim = dim
        self.embed_scale = math.sqrt(inner) if scale == "sqrt_dim" else float(scale)
        rows = partial(_rows, multiple=model["vocab_multiple"])
        self.embed = nn.Embedding(
            rows(vocab_size), inner, _weight=torch.empty(rows(vocab_size), inner)
        )
        plans = stacks(config)
        self.source_vocab_size = source_vocab_size or vocab_size
        # None where the source is embedded by `embed`
        self.source_embed: nn.Embedding | None = None
        if len(plans) > 1 and model["share_embeddings"] and self.source_vocab_size != vocab_size:
            raise ConfigError(
                f"model.share_embeddings: needs one vocabulary; got {vocab_size} tokens of the"
                f" target and {self.source_vocab_size} of the source. Set"
                " model.share_embeddings=false, or tokenizer.shared=true."
            )
        if len(plans) > 1 and not model["share_embeddings"]:
            count = rows(self.source_vocab_size)
            self.source_embed = nn.Embedding(count, inner, _weight=torch.empty(count, inner))
        types = model["token_types"]
        self.token_type = (
            nn.Embedding(types, inner, _weight=torch.empty(types, inner)) if types else None
        )
        for plan in plans:
            other = plan.name == "encoder" and self.source_embed is not None
            self.add_module(
                plan.name,
                Stack(config, plan, rows(self.source_vocab_size if other else vocab_size)),
            )
        self.names = tuple(plan.name for plan in plans)
        self.future_tokens = plans[-1].future + 1  # that `hidden` has a state for, with `future`
        self.head = self._head(config, rows(vocab_size), plans[-1].variants["base"].nodes["norm"])
        if not self.embed.weight.is_meta:
            seed = config["seed"] if model.get("seed") is None else model["seed"]
            init = INITS.create(config["init"], dim=dim, stacks=depths(config))
            initialise(self, seed, init, self._gains())
            if self.unit_weights:
                unit_weights(self)

    def _head(self, config: Mapping[str, Any], rows: int, norm: Mapping[str, Any]) -> Head:
        model, transform = config["model"], None  # type: tuple[Any, nn.Module | None]
        read = (model["embed_dim"] if model["tie_embeddings"] else None) or model[
            "dim"
        ]  # channels that the head reads
        if model["head_transform"]:
            transform = Transform(model["dim"], read, partial(NORMS.create, norm, dim=read))
        elif read != model["dim"]:
            transform = nn.Linear(model["dim"], read, bias=False)
        rest = (
            self.vocab_size,
            model["head_bias"],
            transform,
            Shape(model["logit_scale"], model["logit_softcap"]),
        )
        if model["tie_embeddings"]:
            return TiedHead(self.embed, *rest)
        return Head(nn.Parameter(torch.empty(rows, model["dim"])), *rest)

    def _gains(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name in self.names:
            for where, block in self.get_submodule(name).named_blocks.items():  # type: ignore[union-attr, operator]
                found |= block.gains(f"{name}.{where}")
        return found

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
        """The encoder's output for source tokens (b, s), and what its parts report."""
        encoder: Stack = self._modules["encoder"]  # type: ignore[assignment]
        table = self.embed if self.source_embed is None else self.source_embed
        if self.stack.source_reach is not None:
            _fits(source, None, self.stack.source_reach, "source")
        tokens, x = self._embedded(source, encoder, table, None, "source")
        x, report = encoder(x, tokens)
        return Encoded(x, tokens), _prefixed(report, "encoder")

    def hidden(
        self,
        tokens: Tokens,
        cache: Past | None = None,
        source: Tokens | Encoded | None = None,
        future: bool = False,
    ) -> tuple[Tensor, Report]:
        """What the head reads, (b, t, dim), for tokens (b, t), and what the parts report. Goes on
        from `cache`.

        In a model of two stacks `tokens` are the decoder's and `source` the encoder's, or what
        `encode` made of them. With `future`, which only training asks for, (future_tokens, b, t,
        dim): for the next token, the one behind it, ...
        """
        reports: Report = {}
        if self.two_stacks and source is None:
            raise ConfigError(
                "source: must be given to a model of two stacks; call model(source=...,"
                " target=...)."
            )
        if isinstance(source, Tokens):
            source, reports = self.encode(source)
        stack = self.stack
        if cache is not None and stack.stale(cache, tokens.length):
            return self._anew(tokens, cache, source)
        tokens, x = self._embedded(tokens, stack, self.embed, cache, "model")
        if source is None:
            x, report = stack(x, tokens, cache, future=future)
        else:
            x, report = stack(x, tokens, cache, source.hidden, source.tokens, future)
        report = _prefixed(report, self.names[-1])
        if "loss" in reports and "loss" in report:
            report["loss"] = report["loss"] + reports["loss"]
        return x, reports | report

    def _anew(self, tokens: Tokens, cache: Past, source: Encoded | None) -> tuple[Tensor, Report]:
        """The same, where what the cache holds is wrong beside the new tokens: they are read with
        all before them.
        """
        new = tokens.length
        cache.tokens = cache.tokens.then(tokens.placed(cache.tokens))  # type: ignore[union-attr]
        cache.unread += new
        x, report = self.hidden(cache.tokens, source=source)
        return x[:, -new:], report

    def _embedded(
        self, tokens: Tokens, stack: Stack, table: nn.Embedding, cache: Past | None, what: str
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
        cache: Past | None = None,
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
            raise ConfigError(
                "source, target: need an encoder and a decoder; give ids, or build"
                " model=encoder_decoder."
            )
        if (ids is None) == (target is None):
            raise ConfigError(
                "ids: give either ids or target, the tokens of the stack that predicts."
            )
        if (target_real if target is None else real) is not None:
            raise ConfigError(
                "real, target_real: the first says what is padding in ids, the second in target."
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

    def cache(self, rows: int, length: int, source_length: int = 0) -> Past:
        """An empty cache for generation: `rows` sequences of at most `length` tokens, beside a
        source of `source_length`.
        """
        if self.two_stacks and source_length < 1:
            raise ConfigError(
                f"source_length: must be the number of the source's tokens; got {source_length}. "
                "Call model.cache(rows, length, source_length)."
            )
        return self.stack.cache(rows, length, source_length)

    def after_step(self, report: Report) -> None:
        """Hand each part what it reported, summed over the micro-batches and ranks of an optimizer
        step, which it has made.
        """
        if self.unit_weights:
            unit_weights(self)
        for owner, said in _by_owner(report).items():
            module = self.get_submodule(owner)
            if owner and hasattr(module, "after_step"):
                module.after_step(said)  # type: ignore[operator]

    def figures(self, report: Report) -> dict[str, float]:
        """What there is to log of such a report: a part's `figures(said) -> {name: number}`, or
        else its single numbers.
        """
        found: dict[str, float] = {}
        for owner, said in _by_owner(report).items():
            module = self.get_submodule(owner)
            plain = {key: float(value) for key, value in said.items() if value.numel() == 1}
            told = module.figures(said) if owner and hasattr(module, "figures") else plain  # type: ignore[operator]
            found |= {f"{owner}.{key}" if owner else key: value for key, value in told.items()}
        return found

    def generate(self, ids: Tensor | None = None, **options: Any) -> Tensor:
        """Prompts (b, t) and their continuations (b, t + max_new_tokens); see
        `xformer_kit.generate.generate`.
        """
        from xformer_kit.generate import generate

        return generate(self, ids, **options)


def _rows(vocab_size: int, multiple: int) -> int:
    return -(-vocab_size // multiple) * multiple


def _by_owner(report: Report) -> dict[str, Report]:
    """decoder.0.ffn.load -> decoder.0.ffn, load; what has no owner is the model's own."""
    owners: dict[str, Report] = defaultdict(dict)
    for name, value in report.items():
        owner, _, key = name.rpartition(".")
        owners[owner][key] = value
    return owners


def _prefixed(report: Report, name: str) -> Report:
    return {key if key == "loss" else f"{name}.{key}": value for key, value in report.items()}


def _fits(tokens: Tokens, cache: Past | None, longest: int, what: str) -> None:
    length = tokens.length + (0 if cache is None else cache.length)
    if length > longest:
        raise ConfigError(
            f"model.max_len: the {what}'s positions end at {longest} tokens; got {length}. "
            "Give fewer, or build it with a larger model.max_len."
        )
