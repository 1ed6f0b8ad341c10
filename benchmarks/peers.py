"""The same language model in xformer_kit and other libraries: `loss(ids, target)` for training,
`generate(ids, count)`.

Every peer has the sizes of a Shape, no dropout, and its head tied to its embedding. GPT-2's family
has learned positions, LayerNorm and an mlp of 4 x dim with gelu; Llama's rotary positions, RMSNorm
and a gated network of about 8/3 x dim. A library that is not installed raises ImportError, and the
benchmark reports it.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import hand_written


class Shape(NamedTuple):
    layers: int
    dim: int  # channels
    heads: int
    length: int  # tokens of a sequence
    vocab: int
    batch: int = 1  # sequences

    @property
    def tokens(self) -> int:
        return self.batch * self.length

    @property
    def gated(self) -> int:
        """Width of a gated network with about as many parameters as an mlp of 4 x dim, a multiple
        of 8.
        """
        return -(-round(8 / 3 * self.dim) // 8) * 8


class Peer(NamedTuple):
    family: str  # gpt or llama
    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]  # mean cross-entropy
    # greedy, with a cache: (b, t) -> (b, t + count)
    generate: Callable[[Tensor, int], Tensor] | None = None


def mean_loss(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def ours(shape: Shape, family: str, *more: str) -> Peer:
    from xformer_kit import build, compose
    from xformer_kit.tensors.tokens import Tokens

    components = {
        "gpt": ["position=learned", "norm=layer", "ffn=mlp"],
        "llama": ["position=rotary", "norm=rms", "ffn=glu", f"ffn.width={shape.gated}"],
    }[family]
    sizes = [f"model.dim={shape.dim}", f"model.layers={shape.layers}", f"attn.heads={shape.heads}"]
    config = compose(
        [*sizes, *components, f"data.seq_len={shape.length}", "model.vocab_multiple=1", *more]
    )
    model = build(config, vocab_size=shape.vocab)

    def loss(ids: Tensor, target: Tensor) -> Tensor:
        hidden, _ = model.hidden(Tokens(ids=ids))
        return model.head(hidden, target) / target.numel()

    return Peer(
        family,
        model,
        loss,
        lambda ids, count: model.generate(ids, max_new_tokens=count, temperature=0.0),
    )


def ours_gpt(shape: Shape) -> Peer:
    return ours(shape, "gpt")


def ours_gpt_with_biases(shape: Shape) -> Peer:
    """GPT-2 exactly: a bias on every projection, gelu with tanh."""
    return ours(shape, "gpt", "attn.bias=true", "ffn.bias=true", "ffn.activation=gelu_tanh")


def ours_llama(shape: Shape) -> Peer:
    return ours(shape, "llama")


def by_hand(shape: Shape) -> Peer:
    model = hand_written.GPT(*shape[:5])
    return Peer("gpt", model, model.loss, model.generate)


def by_hand_llama(shape: Shape) -> Peer:
    model = hand_written.Llama(*shape[:5], shape.gated)
    return Peer("llama", model, model.loss, model.generate)


def transformers_gpt2(shape: Shape) -> Peer:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=shape.vocab,
        n_positions=shape.length,
        n_embd=shape.dim,
        n_layer=shape.layers,
        n_head=shape.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        activation_function="gelu_pytorch_tanh",
        attn_implementation="sdpa",
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    return _transformers("gpt", GPT2LMHeadModel(config))


def transformers_llama(shape: Shape) -> Peer:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocab,
        max_position_embeddings=shape.length,
        hidden_size=shape.dim,
        intermediate_size=shape.gated,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    return _transformers("llama", LlamaForCausalLM(config))


def _transformers(family: str, model: nn.Module) -> Peer:
    def loss(ids: Tensor, target: Tensor) -> Tensor:
        return mean_loss(model(input_ids=ids, use_cache=False).logits, target)

    def generate(ids: Tensor, count: int) -> Tensor:
        return model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False
        )

    return Peer(family, model, loss, generate)


def x_transformers(shape: Shape, flash: bool = False) -> Peer:
    from x_transformers import Decoder, TransformerWrapper
    from x_transformers.autoregressive_wrapper import AutoregressiveWrapper

    decoder = Decoder(
        dim=shape.dim,
        depth=shape.layers,
        heads=shape.heads,
        attn_dim_head=shape.dim // shape.heads,
        attn_flash=flash,
    )
    model = TransformerWrapper(
        num_tokens=shape.vocab, max_seq_len=shape.length, attn_layers=decoder, tie_embedding=True
    )
    wrapped = AutoregressiveWrapper(model)

    def generate(ids: Tensor, count: int) -> Tensor:
        new = wrapped.generate(ids, count, temperature=0.0, cache_kv=True)
        return torch.cat([ids, new], 1)

    return Peer("gpt", model, lambda ids, target: mean_loss(model(ids), target), generate)


def x_transformers_flash(shape: Shape) -> Peer:
    return x_transformers(shape, flash=True)


def litgpt_llama(shape: Shape) -> Peer:
    return _litgpt(
        shape,
        "llama",
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP",
        intermediate_size=shape.gated,
    )


def litgpt_neox(shape: Shape) -> Peer:
    """litgpt's model closest to GPT-2: LayerNorm and an mlp with gelu, but rotary positions."""
    return _litgpt(
        shape,
        "gpt",
        norm_class_name="LayerNorm",
        mlp_class_name="GptNeoxMLP",
        intermediate_size=4 * shape.dim,
    )


def _litgpt(shape: Shape, family: str, **options) -> Peer:
    from litgpt.model import GPT, Config

    config = Config(
        block_size=shape.length,
        n_layer=shape.layers,
        n_embd=shape.dim,
        n_head=shape.heads,
        bias=False,
        padded_vocab_size=shape.vocab,
        vocab_size=shape.vocab,
        parallel_residual=False,
        rotary_percentage=1.0,
        **options,
    )
    model = GPT(config)
    model.lm_head.weight = model.transformer.wte.weight
    return Peer(family, model, lambda ids, target: mean_loss(model(ids), target))


class TorchEncoder(nn.Module):
    """torch.nn.TransformerEncoder after embeddings: norm first, causal, no biases."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.embed = nn.Embedding(shape.vocab, shape.dim)
        self.position = nn.Embedding(shape.length, shape.dim)
        layer = nn.TransformerEncoderLayer(
            shape.dim,
            shape.heads,
            4 * shape.dim,
            0.0,
            "gelu",
            batch_first=True,
            norm_first=True,
            bias=False,
        )
        self.encoder = nn.TransformerEncoder(
            layer, shape.layers, nn.LayerNorm(shape.dim), enable_nested_tensor=False
        )
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(shape.length))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids) + self.position.weight[: ids.shape[1]]
        return F.linear(self.encoder(x, mask=self.mask, is_causal=True), self.embed.weight)


def torch_encoder(shape: Shape) -> Peer:
    model = TorchEncoder(shape)
    return Peer("gpt", model, lambda ids, target: mean_loss(model(ids), target))


OURS = {
    "ours (GPT-2 like)": ours_gpt,
    "ours (Llama like)": ours_llama,
    "ours (GPT-2 with biases)": ours_gpt_with_biases,
}
PEERS = {
    "hand-written GPT": by_hand,
    "hand-written Llama": by_hand_llama,
    "transformers GPT-2": transformers_gpt2,
    "transformers Llama": transformers_llama,
    "x-transformers": x_transformers,
    "x-transformers, flash": x_transformers_flash,
    "litgpt, Llama": litgpt_llama,
    "litgpt, GPT-NeoX": litgpt_neox,
    "torch.nn.TransformerEncoder": torch_encoder,
}
