"""Labels of texts, by a run of task=classification or task=regression."""

from collections.abc import Sequence
from typing import Any

import torch

from tasks.generation.decoding import BATCH_SIZE, batch_to_device, device_of
from tasks.generation.translation import check_length, encode_lines, line_path
from xformer_kit.registry import config_error

Labels = list[tuple[str, float | None]]  # see `TextHead.predicted_labels`


@torch.inference_mode()
def label_texts(
    run: Any, lines: Sequence[str], where: str, batch_size: int | None = None
) -> list[Labels]:
    """Returns the labels of each text, the likeliest first. A text that is too long is cut off if
    the run cut those of its corpus off (data.too_long=truncate).

    Raises ConfigError, with the line, for an empty text, for one that the tokenizer cannot encode,
    and for one that is too long.
    """
    data, objective, examples = run.config["data"], run.objective, []
    for number, ids in enumerate(encode_lines(objective.source_tokenizer, lines, where), 1):
        path = line_path(where, number, lines)
        if not len(ids):
            raise config_error(path, "must hold at least one token", "an empty text")
        if data["too_long"] != "truncate":
            check_length(ids, data["seq_len"], path)
        examples.append(objective.text_example(ids[: data["seq_len"] - 1]))
    size, labels = batch_size or BATCH_SIZE, []
    for start in range(0, len(examples), size):
        batch = batch_to_device(device_of(run), examples[start : start + size])
        outputs, _ = objective.head_outputs(run.model, batch)
        labels += [objective.predicted_labels(row) for row in outputs.cpu()]
    return labels
