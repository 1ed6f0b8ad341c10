"""Attention through a few landmarks."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention.base import ATTENTIONS, check_heads
from xformer_kit.attention.mixing import RAGGED, Whole, over, rows
from xformer_kit.kernel import Kernel
from xformer_kit.registry import above, at_least


@ATTENTIONS.register("nystrom", also_called=("nystromformer", "nystroem"))
class Nystrom(Whole):
    """softmax(q K~^T) pinv(softmax(Q~ K~^T)) softmax(Q~ k^T) v in each head, with means of segments
    Q~ and K~ (Nyströmformer: Xiong et al., 2021, arXiv:2102.03902, "Linearized self-attention via
    Nyström method").

    Scores are scaled. Q~ and K~, the landmarks, are means of the queries and keys of as many
    segments of a text. Memory and time are linear in the length.

    The pseudo-inverse is found in `iterations` of Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4,
    from A^T / (|A|_1 |A|_inf) on (Razavi et al., 2014, as in that paper). Token i of n is of
    segment floor(i landmarks / n); a text of fewer tokens than landmarks has as many as tokens.
    conv adds a depthwise convolution of the values, with one filter for each head. Positions may
    rotate: a landmark is then a mean of rotated ones.
    """

    # Authors' code: |A|_1 is the largest of the whole batch.   Here: of each matrix, as in their
    # exact variant, so that a row does not depend on its neighbours.

    breaks = RAGGED | {"symmetry": "segments are told by the order of the tokens"}
    enters = ("embed", "rotate")
    crosses = "takes means over all tokens that ask, later ones too, which a decoder cannot"
    no_gradient = ("k.bias",)

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
        super().__init__()
        self.head_dim = head_dim or dim // heads
        self.landmarks = landmarks
        self.iterations = iterations
        self.scale = self.head_dim**-0.5 if scale is None else scale
        self.q, self.k, self.v = (nn.Linear(dim, heads * self.head_dim, bias) for _ in range(3))
        self.o = nn.Linear(heads * self.head_dim, dim, bias)
        self.filter = nn.Parameter(torch.empty(heads, conv)) if conv else None
        self.kernel = kernel

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        yield from at_least(options, landmarks=1, iterations=1)
        yield from at_least(options, "token", conv=1)
        if options.conv and options.conv % 2 == 0:
            yield (
                f"conv: must be odd, as many tokens before as behind; got {options.conv}. Try"
                f" {options.conv + 1}."
            )
        yield from above(options, "null is head_dim^-0.5.", scale=0)

    @classmethod
    def vain(cls, context):
        """Options that change nothing in a composition, each with the reason and the way out."""
        wanted, longest = context.options["attn"]["landmarks"], context.max_len
        if wanted > longest and context.position.bounded:
            yield (
                "landmarks",
                (
                    f"position '{context.names['position']}' ends at model.max_len={longest}"
                    f" tokens, and a text has no more landmarks than tokens; got {wanted}. Try"
                    f" {max(1, longest // 4)}, or model.max_len={wanted}"
                ),
            )

    def initial(
        self, name: str, shape: tuple[int, ...], generator: torch.Generator
    ) -> Tensor | None:
        """Of a filter: uniform in +- 1 / sqrt(tokens), as torch draws convolutions."""
        return (
            (2 * torch.rand(shape, generator=generator) - 1) * shape[-1] ** -0.5
            if name == "filter"
            else None
        )

    def forward(self, x, source, view, cache=None):
        heads = (
            m(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for m in (self.q, self.k, self.v)
        )
        q, k, v = heads  # (b, h, t, d)
        q = view.position.rotate(q, view.query)
        k = view.position.rotate_key(k, view.query)
        texts = rows(view.query, len(x))
        q, k, v = (
            texts.apart(part.transpose(1, 2).flatten(2))
            .unflatten(-1, (-1, self.head_dim))
            .transpose(1, 2)
            for part in (q, k, v)
        )
        out = self._mixed(q, k, v, view, texts.length, texts.real)
        if self.filter is not None:
            out = out + F.conv2d(
                v,
                self.filter[:, None, :, None],
                padding=(self.filter.shape[1] // 2, 0),
                groups=v.shape[1],
            )
        return self.o(texts.back(out.transpose(1, 2).flatten(2), len(x)))

    def _mixed(self, q, k, v, view, length: Tensor | None, real: Tensor | None) -> Tensor:
        """What the queries of each row read, (rows, h, n, d)."""
        q_marks, k_marks, there = self._means(q, k, length)
        look = over(view, self.kernel, q_marks, k, None, real)
        read = self.kernel(q_marks, k, v, look, self.scale)  # (rows, h, landmarks, d)
        scores = q_marks @ k_marks.mT * self.scale
        if there is not None:
            pair = there[:, None, :, None] & there[:, None, None, :]
            scores = scores.masked_fill(~pair, -torch.finfo(scores.dtype).max)
            between = scores.softmax(-1) * pair
        else:
            between = scores.softmax(-1)
        solved = inverse(between, self.iterations)
        read = (solved @ read.to(solved.dtype)).to(v.dtype)
        look = over(view, self.kernel, q, k_marks, None, there)
        return self.kernel(q, k_marks, read, look, self.scale)

    def _means(
        self, q: Tensor, k: Tensor, length: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Landmarks (rows, h, m, d), and where rows differ, which of them have a token, (rows,
        m).
        """
        n, most = q.shape[2], min(self.landmarks, q.shape[2])
        if length is None and n % most == 0:
            return *(x.unflatten(2, (most, -1)).mean(3) for x in (q, k)), None  # type: ignore[return-value]
        slot = torch.arange(n, device=q.device)
        whole = slot.new_full((1, 1), n) if length is None else length[:, None]
        count = whole.clamp(min=1, max=most)
        segment = torch.where(slot < whole, slot * count // whole.clamp(min=1), most)
        own = (segment[:, None] == torch.arange(most, device=q.device)[:, None]).to(
            q.dtype
        )  # (rows or 1, m, n)
        size = own.sum(-1, keepdim=True)
        own = (own / size.clamp(min=1))[:, None]
        return own @ q, own @ k, None if length is None else size[..., 0] > 0


def inverse(a: Tensor, iterations: int) -> Tensor:
    """The pseudo-inverse of matrices whose rows are weights, (..., m, m), in at least fp32."""
    with (
        nullcontext() if a.is_meta else torch.autocast(a.device.type, enabled=False)
    ):  # on meta there is none to leave
        a = a if a.dtype == torch.float64 else a.float()
        one = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
        z = a.mT / a.sum(-2).amax(-1).clamp(min=torch.finfo(a.dtype).tiny)[..., None, None]
        for _ in range(iterations):
            az = a @ z
            z = z @ (13 * one - az @ (15 * one - az @ (7 * one - az))) / 4
        return z
