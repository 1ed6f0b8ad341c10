"""Token shift: some channels of a token are replaced by those of earlier tokens."""

import torch
from torch import Tensor

from xformer_kit.extra.base import EXTRAS, Extra
from xformer_kit.extra.previous import PreviousPlaces, previous, previous_places
from xformer_kit.registry import at_least, at_most
from xformer_kit.tensors.cache import KeyValueCache


@EXTRAS.register("token_shift", also_called=("shift_tokens",))
class TokenShift(Extra):
    """Splits the channels that each sublayer reads into `tokens` + 1 parts of equal size, and takes
    part n from the n-th real token before it in its document, or 0 if there is none. Remaining
    channels do not change (BlinkDL, https://github.com/BlinkDL/minGPT-tuned; x-transformers'
    shift_tokens, which counts padding too).
    """

    variants = [{"tokens": 1}, {"tokens": 2}]

    def __init__(
        self,
        dim: int,
        sublayers: dict[int, dict[str, str]],
        *,
        tokens: int = 1,  # number of earlier tokens whose channels are read
    ):
        super().__init__()
        self.tokens = tokens
        self.part = dim // (tokens + 1)
        self.names = sorted({name for names in sublayers.values() for name in names})
        self.depths = sorted(sublayers)

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "token", tokens=1)
        if context.dim > 0:  # a part has at least one channel
            yield from at_most(options, tokens=context.dim - 1)

    def prepare(self, layer):
        places = previous_places(layer.key, layer.tokens.length, self.tokens)
        return {} if places is None else places._asdict()

    def wrap(self, name, branch, layer):
        places = PreviousPlaces(**layer.memory) if layer.memory else None
        cache = None if layer.cache is None else layer.cache[f"{layer.depth}.{name}"]
        return lambda x: branch(self.shifted(x, places, cache))

    def shifted(
        self, x: Tensor, places: PreviousPlaces | None, cache: KeyValueCache | None
    ) -> Tensor:
        """Shifts x (b, t, dim); stores the channels that later tokens need in the cache."""
        rest = x.shape[-1] - (self.tokens + 1) * self.part
        own, moved, rest = x.split([self.part, self.tokens * self.part, rest], -1)
        all_moved = moved if cache is None else cache.append(moved[:, None])[0][:, 0]
        parts = enumerate(all_moved.split(self.part, -1), 1)
        shifted = [previous(part, n, x.shape[1], places) for n, part in parts]
        return torch.cat([own, *shifted, rest], -1)

    def caches(self, rows, length, like):
        shape = rows, 1, length, self.tokens * self.part
        names = [f"{depth}.{name}" for depth in self.depths for name in self.names]
        return {n: KeyValueCache(shape, dtype=like.dtype, device=like.device) for n in names}

    def extra_repr(self) -> str:
        return f"tokens={self.tokens}"
