"""Several residual streams, read, mixed and written by learned weights."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.placement import PLACEMENTS, MakeNorm, Placement, SublayerNorms
from xformer_kit.registry import Fault, at_least
from xformer_kit.tensors import hidden, vector
from xformer_kit.zoo.placement._blend import blend


def doubly_stochastic(logits: Tensor, iterations: int) -> Tensor:
    """exp(logits) (n, n, ...), its second axis and its first divided by their sums in turn
    (Sinkhorn and Knopp, 1967): weights of each input stream sum to about 1, those of each output
    stream to 1.
    """
    mixed = torch.softmax(logits, 1)
    for _ in range(iterations - 1):
        mixed = mixed / mixed.sum(0, keepdim=True)
        mixed = mixed / mixed.sum(1, keepdim=True)
    return mixed / mixed.sum(0, keepdim=True)


@PLACEMENTS.register(
    "hyper_connections",
    also_called=("hyper_connection", "hc"),
    similar=("dhc", "shc", "mhc", "residual_streams"),
)
class HyperConnections(Placement):
    """Streams x_1 to x_n: h = sum_i A_i0 x_i is read, x_j <- sum_i A_ij x_i + B_j f(norm(h)) is
    written, and the output is the norm of their sum (Zhu et al., 2024, arXiv:2409.19606, eq. 2 and
    section 2.1).

    A (n, 1 + n) and B (n,) are learned; with `dynamic` each token adds to them, by eq. 10 to 13:
    s_a tanh(norm(x_i) W_a) to row i of A, and s_b tanh(norm(x_i) W_b) to B_i, with W (n + 2,
    dim) that starts at 0 and s that starts at 0.01. All streams start as the embedding. The k-th
    group of sublayers, counted from 0, starts by reading only stream k mod n, keeping every stream,
    and writing to all with weight 1 (eq. 14), which equals placement=pre. Sublayers in parallel are
    summed before B.

    With mixing=doubly_stochastic these are logits a and b (mHC: Xie et al., 2025, arXiv:2512.24880,
    section 4.2): A_i0 = sigmoid(a_i0), B_j = 2 sigmoid(b_j), and A_ij is exp(a_ij) with rows and
    columns that Sinkhorn's iterations bring to sum 1, so that mixing does not amplify streams. A
    token adds s rms([x_1 ... x_n]) W to them, from all streams and with a separate s for each of
    the three. They start at 0, or at -8 for entries that read or mix a second stream: close to eq.
    14; the paper does not specify it.
    """

    # Paper (section 4): matrices that write start scaled by sqrt(n), for the sum of streams.
    # Here: as in any placement.

    variants = [
        {"streams": 3, "dynamic": False, "shared": False},
        {"streams": 3, "mixing": "doubly_stochastic", "iterations": 5},
    ]

    parameter_info = {
        "beta": vector("streams"),
        "dynamic": hidden("weights", "streams_read*dim"),
        "scale": vector("factors"),
    }

    def __init__(
        self,
        dim: int,
        norm: MakeNorm,
        order: int,
        parallel: int,
        *,
        streams: int = 4,  # n, the paper's expansion rate
        # whether weights depend on the token (DHC), or not (SHC)
        dynamic: bool = True,
        # any numbers, or rows and columns of sum 1 (mHC)
        mixing: Literal["free", "doubly_stochastic"] = "free",
        # of Sinkhorn's, where mixing is doubly stochastic; null is 20
        iterations: int | None = None,
        shared: bool = True,  # whether parallel sublayers read one norm or one each
    ):
        super().__init__()
        self.num_streams = streams
        self.read_stream = order % streams
        self.free = mixing == "free"
        self.iterations = iterations or 20
        # Then mixing has no effect, and the norm removes the factor of what is read.
        equal_streams = streams == 1 or not order
        null = equal_streams and not self.free
        # The paper's section 4: what does not depend on tokens does not decay.
        alpha = vector("streams", "1+streams", decays=False, zero_gradient=null)
        self.parameter_info = {"alpha": alpha}
        self.norm = SublayerNorms(norm, parallel, shared)
        self.alpha = nn.Parameter(self._initial_alpha())
        self.beta = nn.Parameter(torch.full((streams,), float(self.free)))
        # Applied to each stream before its dynamic weights are computed.
        self.each = norm() if dynamic and self.free else None
        logits = (streams + 2, dim) if self.free else (streams * (streams + 2), streams * dim)
        self.dynamic = nn.Parameter(torch.zeros(logits)) if dynamic else None
        self.scale = nn.Parameter(torch.full((2 if self.free else 3,), 0.01)) if dynamic else None

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "stream", streams=1)
        yield from at_least(options, iterations=1)
        if options.mixing == "free" and options.iterations is not None:
            yield Fault(
                "iterations",
                "belongs to mixing=doubly_stochastic, and mixing is free",
                options.iterations,
                "Leave it null.",
            )

    @classmethod
    def streams(cls, options):
        return options["streams"]

    def _initial_alpha(self) -> Tensor:
        """The initial A by eq. 14: one stream is read, all are kept."""
        streams = torch.eye(self.num_streams)
        connected = torch.cat([streams[:, self.read_stream : self.read_stream + 1], streams], dim=1)
        return connected if self.free else -8 * (1 - connected)

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        return {"alpha": self._initial_alpha(), "dynamic": torch.zeros(shape)}.get(name)

    def weights(self, state: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """A (n, 1 + n, 1) and B (n, 1), or per token (n, 1 + n, b, t, 1) and (n, b, t, 1)."""
        alpha, beta = self._logits(state)
        if self.free:
            return alpha, beta
        mixed = doubly_stochastic(alpha[:, 1:], self.iterations)
        return torch.cat([torch.sigmoid(alpha[:, :1]), mixed], 1), 2 * torch.sigmoid(beta)

    def _logits(self, state: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The sums of the shared parameters and the additions of each token."""
        if self.dynamic is None:
            return self.alpha[..., None], self.beta[:, None]
        n, scale = self.num_streams, self.scale
        if self.free:
            rows = [torch.tanh(F.linear(self.each(x), self.dynamic)) for x in state]
            logits = torch.stack(rows).movedim(-1, 1)  # (n, b, t, n + 2) -> (n, n + 2, b, t)
            alpha_scale = scale[0]
        else:
            x = torch.cat(tuple(state), -1)
            logits = F.linear(F.rms_norm(x, x.shape[-1:], eps=1e-6), self.dynamic)
            # (b, t, n * (n + 2)) -> (n, n + 2, b, t)
            logits = logits.unflatten(-1, (n, n + 2)).movedim((-2, -1), (0, 1))
            alpha_scale = torch.cat([scale[:1], scale[1:2].expand(n)])[:, None, None, None]
        of_alpha, of_beta = logits[:, :-1, ..., None], logits[:, -1, ..., None]
        alpha = torch.addcmul(self.alpha[..., None, None, None], alpha_scale, of_alpha)
        return alpha, torch.addcmul(self.beta[:, None, None, None], scale[-1], of_beta)

    def forward(self, state, f, tokens):
        alpha, beta = self.weights(state)
        added = f(self.norm(blend(alpha[:, 0], state)))
        return tuple(
            torch.addcmul(blend(alpha[:, 1 + j], state), beta[j], added) for j in range(len(state))
        )

    @staticmethod
    def finish(state, norm):
        return norm(torch.stack(state).sum(0))

    def extra_repr(self):
        mixing = "" if self.free else f", mixing=doubly_stochastic, iterations={self.iterations}"
        return f"streams={self.num_streams}, dynamic={self.dynamic is not None}{mixing}"
