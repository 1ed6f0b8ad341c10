"""Steps without tensors of another device and without values read from their own: each law of
laws/device.py bites.
"""

import torch
from breaking import bites, each, laws_of

from xformer_kit.attention import ATTENTIONS
from xformer_kit.attention.multi_head import MultiHead
from xformer_kit.ffn import FFNS, MLP


class Reading(MLP):
    """Reads a value, for which a GPU is waited for."""

    def forward(self, x, tokens):
        return super().forward(x if x.abs().max().item() >= 0 else -x)


class Making(MLP):
    """Makes a table on the CPU in each forward."""

    def forward(self, x, tokens):
        return super().forward(x + torch.zeros(1, device="cpu").item() if x.is_meta else x)


class OfPadding(MLP):
    """Reads how many tokens are real."""

    def forward(self, x, tokens):
        count = x.shape[1] if tokens.real is None else int(tokens.real.sum())
        return super().forward(x * (count > 0))


class OfDocuments(MLP):
    """Reads how many documents there are."""

    def forward(self, x, tokens):
        count = 1 if tokens.document is None else int(tokens.document.max())
        return super().forward(x * (1 if count >= 0 else 2))


class OfCache(MultiHead):
    """Reads a value of what comes behind a prompt."""

    def forward(self, x, source, context, cache=None):
        if cache is not None and cache.length:
            x = x * (x.sum().item() != 0.5)
        return super().forward(x, source, context, cache)


ARGUMENTS = [
    ("device", FFNS, Reading, "plain: Tensor.item", {"ffn": "broken"}),
    ("device", FFNS, Making, "plain: aten.zeros", {"ffn": "broken"}),
    ("device", FFNS, OfPadding, "padded: Tensor.item", {"ffn": "broken"}),
    ("device", ATTENTIONS, OfCache, "cached: Tensor.item", {"attn": "broken"}),
    ("device with documents", FFNS, OfDocuments, "packed: Tensor.item", {"ffn": "broken"}),
]


@each(ARGUMENTS)
def test_a_broken_component_is_caught(law, registry, component, match, composition):
    bites(law, registry, component, match, composition)


def test_every_law_is_seen_to_bite():
    assert laws_of("device") == {law for law, *_ in ARGUMENTS}
