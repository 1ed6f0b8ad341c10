"""Positions by what is forgotten: tokens say how much of what stands before them still counts."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import KeyValueCache
from xformer_kit.position import POSITIONS, Position, exact
from xformer_kit.registry import Fault, at_least


@POSITIONS.register("forgetting", also_called=("fox", "forget_gates", "data_dependent_alibi"))
class Forgetting(Position):
    """q_i k_j^T * scale + sum_l log f_l over the tokens l from j + 1 to i, with gates f_l that
    tokens choose.

    A gate is f_l = sigmoid(w x_l + b) in each head, x_l what the attention is given of token l (Lin
    et al., 2025, arXiv:2503.02130): ALiBi whose slopes the tokens choose. There is no longest text.

    gates=pair: query i says itself what it forgets, sum of log sigmoid(a_i c_l^T / sqrt(gate_dim))
    over l from j to i - 1, with queries a and keys c of their own, as in x-transformers
    (attn_data_dependent_alibi_per_row).
    bidirectional: later tokens, where a mask shows them, are lowered by gates of their own, over l
    from i + 1 to j; without it they are not lowered. Padding forgets nothing.
    """

    # Authors' code: b starts at 0, gates at 1/2.   Here: at 5, as in x-transformers.

    variants = [{"gates": "pair", "gate_dim": 3, "bidirectional": True}]

    def __init__(
        self,
        dim: int,
        heads: int,
        stack: str,
        *,
        gates: Literal[
            "token", "pair"
        ] = "token",  # whether each token has a gate, or each pair of tokens
        gate_dim: int = 8,  # channels of the queries and keys of gates=pair
        start: float = 5.0,  # b at the start, of gates=token; sigmoid(5) = 0.993
        bidirectional: (
            bool | None
        ) = None,  # whether later tokens have gates too; null: in an encoder
        per_layer: bool = True,  # gates for each layer; false: one set for the stack
    ):
        super().__init__()
        self.both = stack == "encoder" if bidirectional is None else bidirectional
        self.heads = heads
        self.start = start
        self.gates = heads * (1 + self.both)  # those for earlier tokens first
        self.gate_dim = gate_dim if gates == "pair" else None
        self.weight = nn.Parameter(
            torch.zeros(2 * self.gates * gate_dim if self.gate_dim else self.gates, dim)
        )
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
                "forgetting counts what the tokens between two forget, and tokens of two texts have"
                " none between them",
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
        made = F.linear(x, self.weight, self.offset)
        if self.gate_dim:
            asks, keys = made.unflatten(-1, (2, self.gates, -1)).permute(
                2, 0, 3, 1, 4
            )  # -> (b, gates, t, gate_dim)
        else:
            asks, keys = None, exact(made).mT[..., None]  # (b, t, gates) -> (b, gates, t, 1)
        keys = keys if cache is None else cache.append(keys)[0]
        gates = (
            keys.mT if asks is None else exact(asks @ keys.mT) * keys.shape[-1] ** -0.5
        )  # (b, gates, 1 or t, s)
        logs = F.logsigmoid(gates)
        if context.key.real is not None:
            logs = logs.masked_fill(~context.key.real[:, None, None], 0)
        return self._summed(logs, x.shape[1])

    def _summed(self, logs: Tensor, t: int) -> Tensor:
        """Sums over the tokens between two: (b, gates, 1 or t, s) -> (b, h, t, s)."""
        # Not a difference of two sums from the start of the text, which would lose what is small,
        # and whose gradient would reach, rounded, across documents.
        s, earlier = logs.shape[-1], logs[:, : self.heads]
        slot = torch.arange(s, device=logs.device)
        later = slot - slot[s - t :, None]  # (t, s): how far a key stands behind the query
        if self.gate_dim:
            back = earlier.masked_fill(later >= 0, 0).flip(-1).cumsum(-1).flip(-1)
        else:  # without the gate of the key itself
            back = F.pad(
                earlier.masked_fill(later > 0, 0)[..., 1:].flip(-1).cumsum(-1).flip(-1), (0, 1)
            )
        return (
            back + logs[:, self.heads :].masked_fill(later <= 0, 0).cumsum(-1)
            if self.both
            else back
        )
