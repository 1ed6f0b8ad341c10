"""Recurrences by the kernels of flash-linear-attention, in bf16 on CUDA."""

import importlib.util
from collections.abc import Callable
from typing import Any

import torch

from xformer_kit.kernel.base import KERNELS, KernelExplanation
from xformer_kit.kernel.chunked import ChunkedRecurrence

LIBRARY = "fla"
MAX_HEAD_DIM = 256  # channels of a key that its kernels of the delta rule have room for


@KERNELS.register("fla", also_called=("flash_linear_attention",))
class FlashLinearAttention(ChunkedRecurrence):
    """Attentions that keep a state, by Triton kernels of the library flash-linear-attention (Yang
    and Zhang, 2024, github.com/fla-org/flash-linear-attention), whose products are in bf16.

    It needs CUDA and the extra `kernels`. On a CPU, in fp64, for one token and for packed documents
    it runs as `chunked`, which computes in fp32.
    """

    speed = 0  # no GPU has run it yet, so that `auto` does not choose it
    trains_on = ("cuda",)

    @classmethod
    def unsupported(cls, context):
        if importlib.util.find_spec(LIBRARY) is None:
            return (
                "it needs flash-linear-attention, which is not installed (pip install"
                " 'xformer_kit[kernels]')"
            )
        if context.attn.head_dim > MAX_HEAD_DIM:
            return f"it computes at most {MAX_HEAD_DIM} channels per head"
        return None

    def explain(self, prepared, queries, keys, dropout):
        return KernelExplanation(
            "flash-linear-attention in bf16; documents and generation as chunked"
        )

    def recur(self, recurrence, state, chunk):
        r = recurrence
        if r.q.shape[2] == 1 or r.segment is not None or not _runs_on(r.q):
            return super().recur(r, state, chunk)
        # (b, h, t, d) -> (b, t, h, d)
        values = {
            name: x.transpose(1, 2).to(torch.bfloat16) for name, x in zip("qkv", r[:3], strict=True)
        }
        shape = r.q.shape[:3]
        if r.decay is not None:
            values["g"] = r.decay.expand(shape).transpose(1, 2)
        if r.beta is not None:
            values["beta"] = r.beta.expand(shape).transpose(1, 2).to(torch.bfloat16)
        operation = operation_of(r.decay is not None, r.beta is not None)
        out, last = operation(scale=1.0, initial_state=state, output_final_state=True, **values)
        return out.transpose(1, 2).to(r.q.dtype), last.to(state.dtype)


def _runs_on(x: torch.Tensor) -> bool:
    """Whether the library computes tensors of this device and dtype."""
    return x.is_cuda and x.dtype != torch.float64


def operation_of(decays: bool, erases: bool) -> Callable[..., Any]:
    """Returns the library's operation of a recurrence with decay, and under the delta rule. Its
    arguments are q, k (b, t, h, d), v (b, t, h, e), g and beta (b, t, h), and the states (b, h, d,
    e).
    """
    from fla.ops import delta_rule, gated_delta_rule, simple_gla

    if not erases:
        return simple_gla.chunk_simple_gla
    return gated_delta_rule.chunk_gated_delta_rule if decays else delta_rule.chunk_delta_rule
