"""Hand-written references: a small GPT and a small Llama in one file, with their training step and
cached decoding.

The speed of composed models is compared with them. Pre-norm blocks with one matrix for queries,
keys and values, torch's causal attention, and the head tied to the embedding. GPT: learned
positions, LayerNorm with a bias, gelu. Llama: rotary positions, RMSNorm, a gated network with one
matrix for both halves. No other biases.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.head_dim = dim // heads
        self.norm_1 = nn.LayerNorm(dim)
        self.norm_2 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(
        self, x: Tensor, past: tuple[Tensor, Tensor] | None = None, start: int = 0
    ) -> Tensor:
        x = x + self.attend(self.norm_1(x), past, start)
        return x + self.down(F.gelu(self.up(self.norm_2(x))))

    def attend(
        self,
        x: Tensor,
        past: tuple[Tensor, Tensor] | None,
        start: int,
        waves: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Causal attention of x (b, t, dim). waves: cosines and sines that rotate queries and keys,
        (t, head_dim).
        """
        b, t, dim = x.shape
        qkv = self.qkv(x).view(b, t, 3, self.heads, self.head_dim)
        q, k, v = (component.transpose(1, 2) for component in qkv.unbind(2))
        if waves is not None:
            q, k = (y * waves[0] + turned(y) * waves[1] for y in (q, k))
        if past is not None:
            past[0][:, :, start : start + t], past[1][:, :, start : start + t] = k, v
            k, v = past[0][:, :, : start + t], past[1][:, :, : start + t]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        return self.out(out.transpose(1, 2).reshape(b, t, dim))


def turned(x: Tensor) -> Tensor:
    """(a, b) -> (-b, a), with a and b the halves of the last axis."""
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


class GPT(nn.Module):
    """ids (b, t) -> logits (b, t, vocab)."""

    def __init__(self, layers: int, dim: int, heads: int, length: int, vocab: int):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.position = nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def hidden(self, ids: Tensor, past: list | None = None, start: int = 0) -> Tensor:
        x = self.embed(ids) + self.position.weight[start : start + ids.shape[1]]
        for i, block in enumerate(self.blocks):
            x = block(x, past and past[i], start)
        return self.norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        return F.linear(self.hidden(ids), self.embed.weight)

    def loss(self, ids: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self(ids).flatten(0, 1), target.flatten())

    @torch.inference_mode()
    def generate(self, ids: Tensor, count: int) -> Tensor:
        """Greedy decoding: ids (b, t) -> (b, t + count), with keys and values in buffers of the
        final length.
        """
        b, t = ids.shape
        heads, head_dim = self.blocks[0].heads, self.blocks[0].head_dim
        room = (b, heads, t + count, head_dim)
        past = [(torch.empty(room), torch.empty(room)) for _ in self.blocks]
        out, new, start = [ids], ids, 0
        for _ in range(count):
            x = self.hidden(new, past, start)[:, -1:]
            start += new.shape[1]
            new = F.linear(x, self.embed.weight).argmax(-1)
            out.append(new)
        return torch.cat(out, 1)


class LlamaBlock(Block):
    """x + attention(norm(x)), then x + gated(norm(x)); `width`: channels of the gated network."""

    def __init__(self, dim: int, heads: int, width: int):
        super().__init__(dim, heads)
        self.norm_1 = nn.RMSNorm(dim, eps=1e-6)
        self.norm_2 = nn.RMSNorm(dim, eps=1e-6)
        self.up = nn.Linear(dim, 2 * width, bias=False)
        self.down = nn.Linear(width, dim, bias=False)

    def forward(self, x: Tensor, past: Any = None, start: int = 0, waves: Any = None) -> Tensor:
        x = x + self.attend(self.norm_1(x), past, start, waves)
        gate, up = self.up(self.norm_2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(GPT):
    """ids (b, t) -> logits (b, t, vocab); the cosines and sines of all positions are tables."""

    def __init__(self, layers: int, dim: int, heads: int, length: int, vocab: int, width: int):
        super().__init__(0, dim, heads, 0, vocab)
        self.blocks = nn.ModuleList(LlamaBlock(dim, heads, width) for _ in range(layers))
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        for parameter in self.blocks.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
        rates = 10_000.0 ** -(torch.arange(0, dim // heads, 2) / (dim // heads))
        angle = torch.arange(length)[:, None] * rates.repeat(2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def hidden(self, ids: Tensor, past: list | None = None, start: int = 0) -> Tensor:
        end = start + ids.shape[1]
        x, waves = self.embed(ids), (self.cos[start:end], self.sin[start:end])
        for i, block in enumerate(self.blocks):
            x = block(x, past and past[i], start, waves)
        return self.norm(x)
