"""Several streams, read and written through gates."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.placement import PLACEMENTS, MakeNorm, Placement
from xformer_kit.registry import at_least, at_most
from xformer_kit.tensors import hidden, vector


@PLACEMENTS.register(
    "gated_streams", also_called=("gated_multi_residual",), similar=("gated_residual",)
)
class GatedStreams(Placement):
    """n streams: h = sum_i sigmoid(r_i) * norm_i(x_i) / n is read, x_j <- x_j + 2 sigmoid(w_j) f(h)
    is written.

    It is `gated_multi_residual` of x-transformers, which names a blog entry of Qwen. The output is
    the norm of their sum.

    r_i (dim,) and w_j are learned, and each token adds to them: r + s silu(u A) B and w + s silu(u
    A) C, where u is the concatenation of all norms' outputs, divided by n; A has `rank` outputs, B
    and C start at 0 and s at 0.01. r_i starts at 1 for stream k mod n and at 0 for the others, with
    k the group of sublayers counted from 0; w starts at 0, so outputs are written to all streams
    with weight 1. All streams start as the embedding. Sublayers in parallel read one h and are
    summed.
    """

    variants = [{"streams": 3, "rank": 5}]

    parameter_info = {
        # Independent of tokens, as in hyper_connections.
        "read": vector("streams", "dim", decays=False),
        "write": vector("streams"),
        "bottleneck": hidden("rank", "streams*dim"),
        "to_read": hidden("streams*dim", "rank"),
        "to_write": hidden("streams", "rank"),
        "scale": vector("1"),
    }

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        order: int,
        *,
        streams: int = 4,  # n
        rank: int = 32,  # channels from which the gates of a token are computed
    ):
        super().__init__()
        self.num_streams = streams
        self.read_stream = order % streams
        self.norm = nn.ModuleList(norm() for _ in range(streams))
        self.read = nn.Parameter(self._initial_read(dim))
        self.write = nn.Parameter(torch.zeros(streams))
        self.bottleneck = nn.Linear(dim * streams, rank, bias=False)
        self.to_read, self.to_write = (
            nn.Parameter(torch.zeros(n, rank)) for n in (dim * streams, streams)
        )
        self.scale = nn.Parameter(torch.full((1,), 0.01))

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "stream", streams=1)
        yield from at_most(options, "streams", streams=1000)
        yield from at_least(options, rank=1)

    @classmethod
    def streams(cls, options):
        return options["streams"]

    def _initial_read(self, dim: int) -> Tensor:
        return torch.eye(self.num_streams)[self.read_stream, :, None].repeat(1, dim)

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        if name == "read":
            return self._initial_read(shape[1])
        return torch.zeros(shape) if name in ("to_read", "to_write") else None

    def forward(self, state, f, tokens):
        n = len(state)
        normed = [norm(x) for norm, x in zip(self.norm, state, strict=True)]
        hidden = self.scale * F.silu(self.bottleneck(torch.cat(normed, -1) / n))  # (b, t, rank)
        read = F.linear(hidden, self.to_read).unflatten(-1, (n, -1)) + self.read
        read = torch.sigmoid(read).unbind(-2)
        write = 2 * torch.sigmoid(F.linear(hidden, self.to_write) + self.write)[..., None]
        h = torch.stack([gate * x for gate, x in zip(read, normed, strict=True)]).sum(0) / n
        added = f(h)
        return tuple(
            torch.addcmul(x, gate, added) for x, gate in zip(state, write.unbind(-2), strict=True)
        )

    @staticmethod
    def finish(state, norm):
        return norm(torch.stack(state).sum(0))

    def extra_repr(self):
        return f"streams={self.num_streams}"
