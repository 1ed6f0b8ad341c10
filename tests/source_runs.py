"""Runs from which others start, without a training."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tests.tasks.checkpoints.test_checkpoints import checkpoint
from xformer_kit import build
from xformer_kit.config import compose, config_yaml
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.objective import objective_of


def write_source(run: Path, words: Sequence[str]) -> Path:
    """Writes config.yaml, a tokenizer of bytes and a checkpoint with initial weights."""
    config = compose(list(words), data=False)
    tokenizer = TOKENIZERS.create("byte")
    tokenizer.specials = objective_of(config).specials
    weights = build(config, tokenizer.size).state_dict()
    state = replace(checkpoint(3, torch.zeros(1)), state_dict=weights, config=config_yaml(config))
    (run / "checkpoints").mkdir(parents=True)
    torch.save(state.entries(), run / "checkpoints/last.ckpt")
    (run / "config.yaml").write_text(config_yaml(config))
    tokenizer.save(run / "tokenizer.json")
    return run
