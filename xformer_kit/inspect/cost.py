"""The cost of a run from its config: parameters, tokens and training FLOPs."""

import json

import torch

from xformer_kit.data.run_length import step_tokens
from xformer_kit.inspect import flops
from xformer_kit.inspect.parameters import count
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model
from xformer_kit.registry import Node

NOT_OF_THE_MODEL = (
    "trainer",
    "optim",
    "schedule",
    "seed",
    "name",
    "logger",
    "callbacks",
    "ema",
    "checkpoints",
)  # groups of the config that do not change the model


class Cost:
    """Computes the costs of runs with one vocabulary, for many configs; each model is counted
    once.
    """

    def __init__(self, vocab: int, source_vocab: int | None = None, given_logits: float = 1.0):
        self.sizes = vocab, source_vocab
        self.given_logits = given_logits
        self._flops: dict[str, float] = {}

    def params(self, config: Node) -> int:
        """Number of parameters."""
        return count(self._model(config))

    def flops_per_token(self, config: Node) -> float:
        """Training FLOPs per token, forward and backward."""
        model_config = {k: v for k, v in config.items() if k not in NOT_OF_THE_MODEL}
        key = json.dumps(model_config, sort_keys=True, default=str)
        if key not in self._flops:
            counted = flops.count(self._model(config), config["data"]["seq_len"], self.given_logits)
            self._flops[key] = counted.training
        return self._flops[key]

    def flops(self, config: Node, steps: int) -> float:
        """Training FLOPs of a run."""
        return self.flops_per_token(config) * tokens(config, steps)

    def _model(self, config: Node) -> Model:
        with torch.device("meta"):
            return build_model(config, *self.sizes)


def tokens(config: Node, steps: int) -> float:
    """Number of tokens in `steps` optimizer steps, including padding."""
    return steps * step_tokens(config["data"])
