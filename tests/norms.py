"""Norms with random parameters, and the numbers that they are applied to."""

import torch

from xformer_kit.norm import NORMS


def numbers():
    """Returns x (3, 2, 5, 7), not contiguous, as in a head, and a weight (7,)."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, 2, 7, generator=draw, dtype=torch.float64).transpose(1, 2)
    weight = torch.randn(7, generator=draw, dtype=torch.float64)
    return x.requires_grad_(), weight.requires_grad_()


def perturbed(module, dtype=torch.float64):
    """Returns a module whose parameters are changed randomly."""
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw))
    return module.to(dtype)


def random_norm(name, dtype=torch.float64, **options):
    """Returns a norm with random parameters."""
    return perturbed(NORMS.create({"name": name, **options}, dim=7), dtype)
