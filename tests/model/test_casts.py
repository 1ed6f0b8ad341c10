"""Under autocast no activation is converted twice to the same dtype."""

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from xformer_kit import build, compose
from xformer_kit.tensors.precision import for_linear
from xformer_kit.tensors.tokens import Tokens

BATCH, LENGTH, DIM = 2, 16, 24


class Casts(TorchDispatchMode):
    """Counts conversions of each activation, (b, t, channels), to each dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors = []  # held, so that ids stay unique
        self.found = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func == torch.ops.aten._to_copy.default and args[0].numel() >= BATCH * LENGTH * DIM:
            self.tensors.append(args[0])
            self.found[id(args[0]), kwargs.get("dtype")] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("words", [[], ["ffn=mlp", "norm=layer"], ["attn.kv_heads=1", "ffn=glu"]])
def test_no_activation_is_converted_twice(words):
    sizes = [f"model.dim={DIM}", "attn.heads=3", "model.layers=2", f"data.seq_len={LENGTH}"]
    model = build(compose([*sizes, *words]), vocab_size=8)
    ids = torch.zeros(BATCH, LENGTH, dtype=torch.int64)
    with Casts() as casts, torch.autocast("cpu", torch.bfloat16):
        model.hidden(Tokens(ids=ids))
    assert casts.found and set(casts.found.values()) == {1}


def test_the_dtype_of_linear_maps():
    x = torch.zeros(3)
    assert for_linear(x) is x
    with torch.autocast("cpu", torch.bfloat16):
        assert for_linear(x).dtype == torch.bfloat16
        assert for_linear(x.double()).dtype == torch.float64
        assert for_linear(x.to("meta")).dtype == torch.float32
