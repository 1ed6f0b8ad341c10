"""Measures how many tokens per second a trained model generates (trainer.decode_tokens), which
studies can report.
"""

import statistics
import time
from typing import Any

import torch

from tasks import Config, Metrics
from tasks.modules.evaluation import EvaluatedTask
from xformer_kit.registry import config_error

ROUNDS = 3  # measured rounds, after a first one that is not measured


def check_decodable(config: Config, model: Any) -> None:
    """Raises ConfigError if a model cannot generate trainer.decode_tokens tokens; for the start of
    a run, before it trains.
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
    max_seq_len = model.max_seq_len
    if max_seq_len is not None and tokens >= max_seq_len:
        raise config_error(
            "trainer.decode_tokens",
            f"must be below the {max_seq_len} tokens that the model's positions allow, for one"
            " begins the text",
            got=tokens,
            fix="Raise model.max_len, or take fewer.",
        )


def decoding_speed(task: EvaluatedTask) -> Metrics:
    """Returns {"decoding_tokens_per_second": median of the rounds}, of greedy decoding with the
    model's cache; {} if trainer.decode_tokens is 0.

    A round generates trainer.decode_tokens tokens for as many texts at once as a step has rows,
    each after one token; with an encoder and a decoder, for sources of data.seq_len tokens. Prompts
    and sources are random: their values have no effect on the time.
    """
    config = task.config
    model: Any = task.model
    tokens = config["trainer"].get("decode_tokens") or 0
    if not tokens:
        return {}
    rows = task.data.rows
    generator = torch.Generator().manual_seed(0)

    def random_ids(vocab_size: int, length: int) -> torch.Tensor:
        return torch.randint(vocab_size, (rows, length), generator=generator).to(task.device)

    inputs = {}
    if "encoder" in config["model"]:
        inputs["source"] = random_ids(model.source_vocab_size, config["data"]["seq_len"])
    seconds = []
    with task.sampling():
        for _ in range(1 + ROUNDS):
            prompt, start = random_ids(model.vocab_size, 1), time.perf_counter()
            model.generate(prompt, max_new_tokens=tokens, temperature=0.0, **inputs)
            if task.device.type == "cuda":
                torch.cuda.synchronize(task.device)
            seconds.append(time.perf_counter() - start)
    return {"decoding_tokens_per_second": rows * tokens / statistics.median(seconds[1:])}
