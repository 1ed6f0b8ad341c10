"""Padded sources and targets, and the names of weights in BERT, BART and Marian."""

import torch

from tests.peers import ATTN, LAYER_NORM, SMALL, WIDTH, State
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import LENGTH, SOURCE, VOCAB


def random_ids(length: int, seed: int) -> torch.Tensor:
    """Returns a batch of 3 rows of random token ids."""
    return torch.randint(2, VOCAB, (3, length), generator=torch.Generator().manual_seed(seed))


IDS, SOURCES = random_ids(LENGTH, 3), random_ids(SOURCE, 4)
REAL = torch.arange(LENGTH) < torch.tensor([LENGTH, 9, 4])[:, None]
SOURCE_REAL = torch.arange(SOURCE) < torch.tensor([5, SOURCE, 8])[:, None]


def renamed(prefix: str, theirs: str, pairs: dict[str, str], state: State) -> State:
    """Returns the weights and biases of `theirs.<value>`, renamed to `prefix.<key>`."""
    both = ("weight", "bias")
    return {
        f"{prefix}.{our}.{component}": state[f"{theirs}.{their}.{component}"]
        for our, their in pairs.items()
        for component in both
    }


NAMES = {
    "bert": {
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "o": "attention.output.dense",
    },
    "bart": {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"},
}


def like_transformers(model: str, **more) -> dict:
    """Returns a config with the shapes and components of BERT or BART."""
    eps = {"name": "layer", "eps": 1e-12} if model == "encoder" else LAYER_NORM
    components = {
        "attn": ATTN,
        "position": "learned",
        "norm": eps,
        "placement": "post",
        "ffn": {"name": "mlp", "width": WIDTH, "activation": "gelu", "bias": True},
        "embed_norm": True,
    }
    return tiny_config(model, **SMALL, **{**components, **more})
