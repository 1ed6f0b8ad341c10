"""Small models of torch with random weights, and ours with the same weights.

Every parameter is random, also biases and weights of norms, so that a missing one changes results.
"""

import torch
from torch import Tensor, nn

from xformer_kit.laws.tiny_composition import LENGTH, SOURCE, VOCAB
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model

DIM, HEADS, LAYERS, WIDTH, POSITIONS = 36, 6, 3, 52, 29
SMALL = {"dim": DIM, "layers": LAYERS, "max_len": POSITIONS, "vocab_multiple": 1}
ATTN = {"name": "multi_head", "heads": HEADS, "kv_heads": None, "head_dim": None, "bias": True}
LAYER_NORM = {"name": "layer", "eps": 1e-5}
State = dict[str, Tensor]


def random_ids(length: int, seed: int) -> torch.Tensor:
    """Returns a batch of 3 rows of random token ids."""
    return torch.randint(2, VOCAB, (3, length), generator=torch.Generator().manual_seed(seed))


# Padded sources and targets.
IDS, SOURCES = random_ids(LENGTH, 3), random_ids(SOURCE, 4)
REAL = torch.arange(LENGTH) < torch.tensor([LENGTH, 9, 4])[:, None]
SOURCE_REAL = torch.arange(SOURCE) < torch.tensor([5, SOURCE, 8])[:, None]


def randomised(model: nn.Module) -> nn.Module:
    """Sets every parameter to random values. Returns the model in evaluation mode."""
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.3 if parameter.ndim < 2 else parameter.shape[-1] ** -0.5
            parameter.mul_(1.0 if parameter.ndim < 2 else 0.0).add_(
                torch.randn(parameter.shape), alpha=scale
            )
    return model.eval()


def loaded(config: dict, state: State) -> Model:
    """Returns our model in evaluation mode with these weights, in their dtype."""
    model = build_model(config, VOCAB).to(next(iter(state.values())).dtype).eval()
    model.load_state_dict(state)  # strict: every parameter of ours comes from the peer
    return model


def close(ours: Tensor, theirs: Tensor) -> None:
    """Asserts that two tensors are equal up to rounding."""
    tolerance = 1e-10 if theirs.dtype == torch.float64 else 1e-5
    atol = tolerance * theirs.abs().max().item()
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=atol)


def renamed(prefix: str, theirs: str, pairs: dict[str, str], state: State) -> State:
    """Returns the weights and biases of `theirs.<value>`, renamed to `prefix.<key>`."""
    both = ("weight", "bias")
    return {
        f"{prefix}.{our}.{component}": state[f"{theirs}.{their}.{component}"]
        for our, their in pairs.items()
        for component in both
    }
