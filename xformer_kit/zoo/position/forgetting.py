"""Forget gates: each token lowers the scores of all tokens before it."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import KeyValueCache
from xformer_kit.position import POSITIONS, Position, at_least_fp32, scaled_products
from xformer_kit.registry import Fault, at_least
from xformer_kit.tensors import hidden, vector


@POSITIONS.register("forgetting", also_called=("fox", "forget_gates", "data_dependent_alibi"))
class Forgetting(Position):
    """q_i k_j^T * scale + sum_l log f_l over the tokens l from j + 1 to i, with a gate f_l computed
    from each token.

    f_l = sigmoid(w x_l + b) in each head, with the attention's input x_l (Lin et al., 2025,
    arXiv:2503.02130): ALiBi with slopes that depend on the tokens. The length is unlimited.

    gates=pair: the gates depend on the query too, sum of log sigmoid(a_i c_l^T / sqrt(gate_dim))
    over l from j to i - 1, with separate queries a and keys c, as in x-transformers
    (attn_data_dependent_alibi_per_row).
    bidirectional: scores of later tokens, if a mask shows them, are lowered by separate gates, over
    l from i + 1 to j; without it they are not lowered. The gate of padding is 1.
    """

    # Authors' code: b starts at 0, gates at 1/2.   Here: at 5, as in x-transformers.

    variants = [{"gates": "pair", "gate_dim": 3, "bidirectional": True}]

    parameter_info = {"weight": hidden("gates", "dim"), "offset": vector("gates")}

    def __init__(
        self,
        dim: int,
        heads: int,
        stack: str,
        *,
        # whether each token has a gate, or each pair of tokens
        gates: Literal["token", "pair"] = "token",
        gate_dim: int = 8,  # channels of the queries and keys of gates=pair
        start: float = 5.0,  # b at the start, of gates=token; sigmoid(5) = 0.993
        # whether later tokens have gates too; null: in an encoder
        bidirectional: bool | None = None,
        per_layer: bool = True,  # gates per layer; false: one set per stack
    ):
        super().__init__()
        self.bidirectional = stack == "encoder" if bidirectional is None else bidirectional
        self.heads = heads
        self.start = start
        self.gates = heads * (1 + self.bidirectional)  # those for earlier tokens first
        self.gate_dim = gate_dim if gates == "pair" else None
        rows = 2 * self.gates * gate_dim if self.gate_dim else self.gates
        self.weight = nn.Parameter(torch.zeros(rows, dim))
        self.offset = None if self.gate_dim else nn.Parameter(torch.full((self.gates,), start))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "channel", gate_dim=1)
        if options.gates == "token" and options.gate_dim != 8:
            yield Fault(
                "gate_dim",
                "belongs to gates=pair",
                got=options.gate_dim,
                fix="Leave it out, or try position.gates=pair.",
            )
        if options.gates == "pair" and options.start != 5.0:
            yield Fault(
                "start",
                "belongs to gates=token",
                got=options.start,
                fix="Leave it out, or try position.gates=token.",
            )

    @classmethod
    def cannot(cls, options, context):
        if context.cross:
            yield Fault(
                "",
                "forgetting multiplies the gates of the tokens between query and key, and in cross"
                " attention there are none",
                fix="Choose another position in model.decoder.cross, e.g. alibi.",
            )

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        return torch.full(shape, self.start) if name == "offset" else None

    def cache(self, rows, length):
        shape = rows, self.gates, length, self.gate_dim or 1
        return KeyValueCache(shape, dtype=self.weight.dtype, device=self.weight.device)

    def read(self, x, context, cache):
        projected = F.linear(x, self.weight, self.offset)
        if self.gate_dim:  # -> (b, gates, t, gate_dim)
            queries, keys = projected.unflatten(-1, (2, self.gates, -1)).permute(2, 0, 3, 1, 4)
        else:  # (b, t, gates) -> (b, gates, t, 1)
            queries, keys = None, at_least_fp32(projected).mT[..., None]
        keys = keys if cache is None else cache.append(keys)[0]
        gates = keys.mT  # (b, gates, 1 or t, s)
        if queries is not None:
            gates = at_least_fp32(scaled_products(queries, keys, keys.shape[-1] ** -0.5))
        logs = F.logsigmoid(gates)
        if context.key.real is not None:
            logs = logs.masked_fill(~context.key.real[:, None, None], 0)
        return self._summed(logs, x.shape[1])

    def _summed(self, logs: Tensor, t: int) -> Tensor:
        """Sums over the tokens between two: (b, gates, 1 or t, s) -> (b, h, t, s)."""
        # Not the difference of two sums from the start of the text: it would lose small values to
        # rounding, and its gradient would leak, rounded, across documents.
        s, earlier = logs.shape[-1], logs[:, : self.heads]
        slot = torch.arange(s, device=logs.device)
        later = slot - slot[s - t :, None]  # (t, s): slots from the query to a later key
        if self.gate_dim:
            back = earlier.masked_fill(later >= 0, 0).flip(-1).cumsum(-1).flip(-1)
        else:  # without the gate of the key itself
            back = earlier.masked_fill(later > 0, 0)[..., 1:].flip(-1).cumsum(-1).flip(-1)
            back = F.pad(back, (0, 1))
        if not self.bidirectional:
            return back
        return back + logs[:, self.heads :].masked_fill(later <= 0, 0).cumsum(-1)
