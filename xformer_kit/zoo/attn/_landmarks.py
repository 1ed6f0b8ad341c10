"""Base of attentions through a few landmarks: queries attend to landmarks, landmarks to keys."""

from torch import Tensor, nn

from xformer_kit.attention import check_heads, head_channels
from xformer_kit.kernel import Kernel
from xformer_kit.registry import Unused, above, at_least
from xformer_kit.tensors import hidden, vector
from xformer_kit.zoo.attn._whole_text import WholeTextAttention, text_rows


class LandmarkAttention(WholeTextAttention):
    """Base: projects queries, keys and values, moves each text to its own row, and calls
    `attend_landmarks`.
    """

    enters = ("embed", "rotate")
    cross_reason = "computes means over all queries, also later ones, which a decoder must not see"

    parameter_info = {
        "q": hidden("heads*head_dim", "dim"),
        "k": hidden("heads*head_dim", "dim"),
        "k.bias": vector("heads*head_dim", bias=True, zero_gradient=True),
        "v": hidden("heads*head_dim", "dim", scales_output=True),
        "o": hidden("dim", "heads*head_dim", writes=True),
    }

    def __init__(
        self,
        dim: int,
        kernel: Kernel,
        heads: int,
        head_dim: int | None,
        landmarks: int,
        bias: bool,
        scale: float | None,
    ):
        super().__init__()
        self.head_dim = head_channels(dim, heads, head_dim)
        self.landmarks = landmarks
        self.scale = self.head_dim**-0.5 if scale is None else scale
        self.q, self.k, self.v = (nn.Linear(dim, heads * self.head_dim, bias) for _ in range(3))
        self.o = nn.Linear(heads * self.head_dim, dim, bias)
        self.kernel = kernel

    @classmethod
    def check(cls, options, context):
        yield from check_heads(options, context)
        yield from at_least(options, landmarks=1, iterations=1)
        yield from above(options, "null is head_dim^-0.5.", scale=0)

    @classmethod
    def cannot(cls, options, context):
        yield from super().cannot(options, context)
        landmarks, max_len = options.landmarks, context.max_len
        if landmarks > max_len and context.position.bounded:
            yield Unused(
                "landmarks",
                f"position '{context.names['position']}' ends at model.max_len={max_len} tokens,"
                " and a text has no more landmarks than tokens",
                got=landmarks,
                fix=f"Try {max(1, max_len // 4)}, or model.max_len={landmarks}.",
            )

    def forward(self, x, source, context, cache=None):
        q, k, v = (self.split(m(x)) for m in (self.q, self.k, self.v))  # (b, h, t, d)
        q = context.position.rotate(q, context.query)
        k = context.position.rotate_key(k, context.query)
        texts = text_rows(context.query, len(x))
        rows = (texts.to_rows(heads.transpose(1, 2).flatten(2)) for heads in (q, k, v))
        q, k, v = map(self.split, rows)
        out = self.attend_landmarks(q, k, v, context, texts.length, texts.real)
        return self.o(texts.from_rows(out.transpose(1, 2).flatten(2), len(x)))

    def split(self, x: Tensor) -> Tensor:
        """(b, t, h * d) -> (b, h, t, d)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def attend_landmarks(
        self, q, k, v, context, length: Tensor | None, real: Tensor | None
    ) -> Tensor:
        """Returns the output of each query, (rows, h, n, d)."""
        raise NotImplementedError
