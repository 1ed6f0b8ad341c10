"""Placements that read the outputs of all earlier layers: one for each group of a stack."""

import torch
from placements import group
from torch import nn

from xformer_kit.placement import PLACEMENTS
from xformer_kit.tensors.tokens import UNKNOWN

DIM, GROUPS = 7, 4
X = torch.randn(2, 3, DIM, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
LAYERS = [nn.Linear(DIM, DIM).double() for _ in range(GROUPS)]


def placements(name):
    """A placement for each group of a stack, with every parameter random."""
    given = {"dim": DIM, "norm": lambda: nn.LayerNorm(DIM), "parallel": 1}
    made = [PLACEMENTS.create({"name": name}, latest=at, **given).double() for at in range(GROUPS)]
    draw = torch.Generator().manual_seed(4)
    for part in made:
        for parameter in part.parameters():
            nn.init.normal_(parameter, generator=draw)
    return made


def through(made, factor=1.0):
    """The output of a stack of these placements, one linear sublayer each."""
    state = type(made[0]).start(X, type(made[0]).streams({}))
    for part, layer in zip(made, LAYERS, strict=True):
        state = part(state, group(layer, factor=factor), UNKNOWN)
    return made[0].finish(state, lambda x: 3 * x)
