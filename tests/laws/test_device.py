"""Each law of xformer_kit/laws/device.py is broken by a faulty component."""

import torch
from breaking import broken_component_test, laws_in

from xformer_kit.attention import ATTENTIONS
from xformer_kit.attention.multi_head import MultiHead
from xformer_kit.ffn import FFNS, MLP


class ReadsValue(MLP):
    """Reads a tensor value, for which the CPU waits for a GPU."""

    def forward(self, x, tokens):
        return super().forward(x if x.abs().max().item() >= 0 else -x)


class MakesCPUTensor(MLP):
    """Creates a tensor on the CPU in each forward."""

    def forward(self, x, context):
        return super().forward(x + torch.zeros(1, device="cpu").item() if x.is_meta else x)


class ReadsPadding(MLP):
    """Reads the number of real tokens."""

    def forward(self, x, context):
        count = x.shape[1] if context.tokens.real is None else int(context.tokens.real.sum())
        return super().forward(x * (count > 0))


class ReadsDocuments(MLP):
    """Reads the number of documents."""

    def forward(self, x, context):
        count = 1 if context.tokens.document is None else int(context.tokens.document.max())
        return super().forward(x * (1 if count >= 0 else 2))


class ReadsValueWithCache(MultiHead):
    """Reads a tensor value in calls after the prompt."""

    def forward(self, x, source, context, cache=None):
        if cache is not None and cache.length:
            x = x * (x.sum().item() != 0.5)
        return super().forward(x, source, context, cache)


ARGUMENTS = [
    ("device", FFNS, ReadsValue, "plain: Tensor.item", {"ffn": "broken"}),
    ("device", FFNS, MakesCPUTensor, "plain: aten.zeros", {"ffn": "broken"}),
    ("device", FFNS, ReadsPadding, "padded: Tensor.item", {"ffn": "broken"}),
    ("device", ATTENTIONS, ReadsValueWithCache, "cached: Tensor.item", {"attn": "broken"}),
    ("device with documents", FFNS, ReadsDocuments, "packed: Tensor.item", {"ffn": "broken"}),
]


test_a_broken_component_is_caught = broken_component_test(ARGUMENTS)


def test_every_law_catches_a_broken_component():
    assert laws_in("device") == {law for law, *_ in ARGUMENTS}
