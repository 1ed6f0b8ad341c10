"""Measures the decoding speed of a trained model (trainer.decode_tokens), which studies can
report.
"""

import statistics
import time
from typing import Any

import torch

from tasks import Config, Metrics
from tasks.evaluation import EvaluatedTask
from xformer_kit.registry import config_error

ROUNDS = 3  # that are measured, after one that is not


def check_decodable(config: Config, model: Any) -> None:
    """Raises ConfigError if a model cannot generate so many tokens: at a run's start, not after its
    last step.
    """
    tokens = config["trainer"].get("decode_tokens") or 0
    if not tokens:
        return
    if "decoder" not in config["model"]:
        raise config_error(
            "trainer.decode_tokens",
            "an encoder without a decoder writes no text token by token",
            got=tokens,
            fix="Leave it 0.",
        )
    longest = model.max_seq_len
    if longest is not None and tokens >= longest:
        raise config_error(
            "trainer.decode_tokens",
            f"must be below the {longest} tokens that the model's positions allow, for one"
            " begins the text",
            got=tokens,
            fix="Raise model.max_len, or take fewer.",
        )


def decoding_speed(task: EvaluatedTask) -> Metrics:
    """Tokens per second, greedily and with the model's cache, for data.batch_size texts at once,
    each from one token on (with two stacks, after a source of data.seq_len tokens); the median of a
    few rounds. Empty if trainer.decode_tokens is 0.

    The tokens are random: their values have no effect on the time.
    """
    tokens = task.config["trainer"].get("decode_tokens") or 0
    if not tokens:
        return {}
    rows = task.data.rows
    draw = torch.Generator().manual_seed(0)

    model: Any = task.model

    def drawn(vocab_size: int, length: int) -> torch.Tensor:
        return torch.randint(vocab_size, (rows, length), generator=draw).to(task.device)

    two, length = "encoder" in task.config["model"], task.config["data"]["seq_len"]
    given = {"source": drawn(model.source_vocab_size, length)} if two else {}
    taken = []
    with task.sampling():
        for _ in range(1 + ROUNDS):
            first, began = drawn(model.vocab_size, 1), time.perf_counter()
            model.generate(first, max_new_tokens=tokens, temperature=0.0, **given)
            if task.device.type == "cuda":
                torch.cuda.synchronize(task.device)
            taken.append(time.perf_counter() - began)
    return {"decoding_tokens_per_second": rows * tokens / statistics.median(taken[1:])}
