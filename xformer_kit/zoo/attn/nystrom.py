"""Nyström attention: through landmarks that are means of segments."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import ATTENTIONS, at_least_fp32, no_autocast
from xformer_kit.kernel import Kernel, scaled_products
from xformer_kit.registry import Fault, at_least
from xformer_kit.tensors import vector
from xformer_kit.zoo.attn._landmarks import LandmarkAttention
from xformer_kit.zoo.attn._whole_text import BREAKS, all_pairs_context


@ATTENTIONS.register("nystrom", also_called=("nystromformer", "nystroem"))
class Nystrom(LandmarkAttention):
    """softmax(q K~^T) pinv(softmax(Q~ K~^T)) softmax(Q~ k^T) v in each head, with means of segments
    Q~ and K~ (Nyströmformer: Xiong et al., 2021, arXiv:2102.03902, "Linearized self-attention via
    Nyström method").

    Scores are scaled. Q~ and K~, the landmarks, are means of the queries and keys of as many
    segments of a text. Memory and time are linear in the length.

    The pseudo-inverse is found in `iterations` of Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4,
    starting from A^T / (|A|_1 |A|_inf) (Razavi et al., 2014, as in that paper). Token i of n is of
    segment floor(i landmarks / n); a shorter text has as many landmarks as tokens.
    conv adds a depthwise convolution of the values, with one filter for each head. Positions may
    rotate: a landmark is then a mean of rotated ones.
    """

    # Authors' code: |A|_1 is the maximum over the batch.   Here: of each matrix, as in their exact
    # variant, so that a row does not depend on other rows.

    variants = [{"landmarks": 4, "conv": 3, "bias": True, "scale": 0.2}]
    breaks = BREAKS | {"symmetry": "segments depend on the order of the tokens"}

    parameter_info = {"filter": vector("heads", "tokens")}

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        *,
        heads: int = 8,  # heads
        head_dim: int | None = None,  # channels of a head; null is dim / heads
        landmarks: int = 64,  # segments of a text
        iterations: int = 6,  # of the pseudo-inverse
        conv: int | None = None,  # tokens of a filter over the values, an odd number; null is none
        bias: bool = False,  # whether the four projections have biases
        scale: float | None = None,  # factor on scores; null is head_dim^-0.5
    ):
        super().__init__(dim, kernel, heads, head_dim, landmarks, bias, scale)
        self.iterations = iterations
        self.filter = nn.Parameter(torch.empty(heads, conv)) if conv else None

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from at_least(options, "token", conv=1)
        if options.conv and options.conv % 2 == 0:
            yield Fault(
                "conv",
                "must be odd, with as many tokens before as after",
                got=options.conv,
                fix=f"Try {options.conv + 1}.",
            )

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        """Of a filter: uniform in +- 1 / sqrt(tokens), as torch draws convolutions."""
        if name != "filter":
            return None
        return (2 * torch.rand(shape, generator=generator) - 1) * shape[-1] ** -0.5

    def attend_landmarks(self, q, k, v, context, length, real):
        q_marks, k_marks, has_token = self._means(q, k, length)
        pair_context = all_pairs_context(context, self.kernel, q_marks, k, None, real)
        read = self.kernel(q_marks, k, v, pair_context, self.scale)  # (rows, h, landmarks, d)
        scores = scaled_products(q_marks, k_marks, self.scale)
        if has_token is None:
            between = scores.softmax(-1)
        else:
            pair = has_token[:, None, :, None] & has_token[:, None, None, :]
            scores = scores.masked_fill(~pair, -torch.finfo(scores.dtype).max)
            between = scores.softmax(-1) * pair
        solved = inverse(between, self.iterations)
        read = (solved @ read.to(solved.dtype)).to(v.dtype)
        pair_context = all_pairs_context(context, self.kernel, q, k_marks, None, has_token)
        out = self.kernel(q, k_marks, read, pair_context, self.scale)
        return out if self.filter is None else out + self._filtered(v)

    def _filtered(self, v: Tensor) -> Tensor:
        """The convolution of the values of each head, (rows, h, n, d)."""
        weight = self.filter[:, None, :, None]
        return F.conv2d(v, weight, padding=(self.filter.shape[1] // 2, 0), groups=v.shape[1])

    def _means(
        self, q: Tensor, k: Tensor, length: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Landmarks (rows, h, m, d), and where rows differ, which of them have a token, (rows,
        m).
        """
        n, most = q.shape[2], min(self.landmarks, q.shape[2])
        if length is None and n % most == 0:
            return *(x.unflatten(2, (most, -1)).mean(3) for x in (q, k)), None
        slot = torch.arange(n, device=q.device)
        whole = slot.new_full((1, 1), n) if length is None else length[:, None]
        count = whole.clamp(min=1, max=most)
        segment = torch.where(slot < whole, slot * count // whole.clamp(min=1), most)
        own = segment[:, None] == torch.arange(most, device=q.device)[:, None]
        own = own.to(q.dtype)  # (rows or 1, m, n)
        size = own.sum(-1, keepdim=True)
        own = (own / size.clamp(min=1))[:, None]
        return own @ q, own @ k, None if length is None else size[..., 0] > 0


def inverse(a: Tensor, iterations: int) -> Tensor:
    """The pseudo-inverse of matrices whose rows are weights, (..., m, m), in at least fp32."""
    with no_autocast(a):
        a = at_least_fp32(a)
        one = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        z = a.mT / a.sum(-2).amax(-1).clamp(min=torch.finfo(a.dtype).tiny)[..., None, None]
        for _ in range(iterations):
            az = a @ z
            z = z @ (13 * one - az @ (15 * one - az @ (7 * one - az))) / 4
        return z
