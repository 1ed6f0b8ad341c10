"""The Lightning module of each objective."""

from functools import partial
from typing import Any

import torch

from tasks import Config
from tasks.modules.evaluation import EvaluatedTask
from xformer_kit.api import build_checked
from xformer_kit.config.options.trainer_schema import SHARDED
from xformer_kit.data.preparation.training_data import TrainingData
from xformer_kit.objective import OBJECTIVES


def create_task(
    config: Config, objective: Any, data: TrainingData, **options: Any
) -> EvaluatedTask:
    """Builds the model of a config and its task. options: those of EvaluatedTask. A model that is
    sharded gets its values then, part by part.
    """
    vocab_size = config["model"].get("vocab_size") or objective.tokenizer.size
    source = objective.source_tokenizer
    source_size = None if source is objective.tokenizer else source.size
    build = partial(build_checked, config, vocab_size, source_size)
    if config["trainer"].get("strategy") not in SHARDED:
        return task_class(config)(config, build(), objective, data=data, **options)
    with torch.device("meta"):
        model = build()
    task = task_class(config)(config, model, objective, data=data, **options)
    task.build_part = build
    return task


def task_class(config: Config) -> type[EvaluatedTask]:
    """The class of a config's task."""
    name = config["task"]["name"]
    if name == "language_modeling":
        from tasks.modules.language_modeling import LanguageModelingTask

        return LanguageModelingTask
    if name == "seq2seq":
        from tasks.modules.seq2seq import Seq2SeqTask

        return Seq2SeqTask
    text_use = OBJECTIVES[name].text_use
    if text_use == "fills":
        from tasks.modules.masked_language_modeling import MaskedLanguageModelingTask

        return MaskedLanguageModelingTask
    if text_use == "restores":
        from tasks.modules.denoising import DenoisingTask

        return DenoisingTask
    return EvaluatedTask
