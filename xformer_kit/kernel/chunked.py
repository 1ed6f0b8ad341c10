"""Recurrences in chunks: matrix products instead of one step per token."""

from xformer_kit.kernel.base import KERNELS, Kernel, KernelExplanation
from xformer_kit.kernel.recurrence import chunks, steps


@KERNELS.register("chunked", also_called=("chunkwise",))
class ChunkedRecurrence(Kernel):
    """Attentions that keep a state: products of token pairs within a chunk, the state between
    chunks; a single token is one step (Sun et al., 2023, arXiv:2307.08621, section 2.3; Yang et
    al., 2024, arXiv:2406.06484, section 3).
    """

    speed = 1
    computes = ("recurrence",)

    def explain(self, prepared, queries, keys, dropout):
        return KernelExplanation("in chunks of attn.chunk tokens, in generation token by token")

    def recur(self, recurrence, state, chunk):
        if recurrence.q.shape[2] == 1:
            return steps(recurrence, state)
        return chunks(recurrence, state, min(chunk, recurrence.q.shape[2]))
