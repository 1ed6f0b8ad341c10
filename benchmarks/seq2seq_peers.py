"""The same encoder-decoder in xformer_kit and other libraries: `loss(source, target)` for training,
`generate(source, count)` for decoding.

Every peer has the sizes of a Shape in each stack, no dropout, one vocabulary for source and target,
and a head tied to the embedding. BART's family has learned positions, LayerNorm after each
sublayer and an mlp with gelu; T5's relative biases, RMSNorm in front and an mlp with relu.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.peers import mean_loss


class Shape(NamedTuple):
    layers: int  # of each stack
    dim: int  # channels
    heads: int
    width: int  # channels of the feed-forward networks
    vocab: int
    length: int  # tokens of a source, and of a target
    batch: int = 1  # pairs

    @property
    def tokens(self) -> int:
        return 2 * self.batch * self.length


class Peer(NamedTuple):
    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]  # target (b, t + 1): t tokens are read and t predicted
    # greedy, or with beam=n: (b, s) -> the answer, count tokens
    generate: Callable[..., Tensor] | None = None


def ours(shape: Shape, *more: str) -> Peer:
    from xformer_kit import build, compose
    from xformer_kit.tensors.tokens import Tokens

    config = compose(
        [
            "model=encoder_decoder",
            "task=seq2seq",
            "data=scan",
            "task_defaults=null",
            f"model.dim={shape.dim}",
            f"model.layers={shape.layers}",
            f"attn.heads={shape.heads}",
            f"data.seq_len={shape.length + 1}",
            f"model.max_len={max(512, shape.length + 1)}",
            "ffn=mlp",
            f"ffn.width={shape.width}",
            "model.vocab_multiple=1",
            *more,
        ]
    )
    model = build(config, vocab_size=shape.vocab)

    def loss(source: Tensor, target: Tensor) -> Tensor:
        hidden, _ = model.hidden(Tokens(ids=target[:, :-1]), source=Tokens(ids=source))
        goal = target[:, 1:].contiguous()
        return model.head(hidden, goal) / goal.numel()

    def generate(source: Tensor, count: int, beam: int = 1) -> Tensor:
        how = {"beam": beam, "early_stopping": "never"} if beam > 1 else {"temperature": 0.0}
        return model.generate(source=source, start=0, max_new_tokens=count, **how)

    return Peer(model, loss, generate)


def ours_bart(shape: Shape) -> Peer:
    """Post-norm, LayerNorm, learned positions, biases, gelu."""
    components = [
        "position=learned",
        "norm=layer",
        "placement=post",
        "attn.bias=true",
        "ffn.bias=true",
        "ffn.activation=gelu",
    ]
    return ours(shape, *components, "model.embed_norm=true")


def ours_modern(shape: Shape) -> Peer:
    """Pre-norm, RMSNorm, rotary positions, no biases, relu."""
    return ours(shape, "position=rotary", "norm=rms", "placement=pre", "ffn.activation=relu")


def transformers_bart(shape: Shape) -> Peer:
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=shape.vocab,
        max_position_embeddings=512,
        d_model=shape.dim,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.width,
        decoder_ffn_dim=shape.width,
        dropout=0.0,
        activation_function="gelu",
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=None,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
    )
    return _transformers(BartForConditionalGeneration(config))


def transformers_t5(shape: Shape) -> Peer:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=shape.vocab,
        d_model=shape.dim,
        d_kv=shape.dim // shape.heads,
        d_ff=shape.width,
        num_layers=shape.layers,
        num_decoder_layers=shape.layers,
        num_heads=shape.heads,
        dropout_rate=0.0,
        pad_token_id=1,
        eos_token_id=None,
        decoder_start_token_id=0,
    )
    return _transformers(T5ForConditionalGeneration(config))


def _transformers(model: nn.Module) -> Peer:
    def loss(source: Tensor, target: Tensor) -> Tensor:
        seen = {"input_ids": source, "decoder_input_ids": target[:, :-1]}
        return mean_loss(model(**seen, use_cache=False).logits, target[:, 1:])

    def generate(source: Tensor, count: int, beam: int = 1) -> Tensor:
        how = {"num_beams": beam, "early_stopping": "never"} if beam > 1 else {}
        mask = torch.ones_like(source)
        return model.generate(
            source,
            attention_mask=mask,
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=False,
            **how,
        )

    return Peer(model, loss, generate)


class TorchTransformer(nn.Module):
    """torch.nn.Transformer after embeddings: post-norm, causal target."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.embed = nn.Embedding(shape.vocab, shape.dim)
        self.position = nn.Embedding(512, shape.dim)
        sizes = {
            "nhead": shape.heads,
            "dim_feedforward": shape.width,
            "dropout": 0.0,
            "batch_first": True,
        }
        self.body = nn.Transformer(
            shape.dim,
            num_encoder_layers=shape.layers,
            num_decoder_layers=shape.layers,
            activation="gelu",
            **sizes,
        )
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(shape.length))

    def read(self, ids: Tensor) -> Tensor:
        return self.embed(ids) + self.position.weight[: ids.shape[1]]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        out = self.body(
            self.read(source), self.read(target), tgt_mask=self.mask, tgt_is_causal=True
        )
        return F.linear(out, self.embed.weight)


def torch_transformer(shape: Shape) -> Peer:
    model = TorchTransformer(shape)
    return Peer(
        model, lambda source, target: mean_loss(model(source, target[:, :-1]), target[:, 1:])
    )


def x_transformers(shape: Shape) -> Peer:
    from x_transformers import XTransformer

    sizes = {
        "depth": shape.layers,
        "heads": shape.heads,
        "attn_dim_head": shape.dim // shape.heads,
        "num_tokens": shape.vocab,
        "max_seq_len": 512,
        "ff_mult": shape.width // shape.dim,
    }
    both = {f"{side}_{key}": value for side in ("enc", "dec") for key, value in sizes.items()}
    model = XTransformer(dim=shape.dim, tie_token_emb=True, **both)
    return Peer(model, lambda source, target: model(source, target))


OURS = {"ours (BART like)": ours_bart, "ours (modern)": ours_modern}
PEERS = {
    "transformers BART": transformers_bart,
    "transformers T5": transformers_t5,
    "torch.nn.Transformer": torch_transformer,
    "x-transformers": x_transformers,
}
