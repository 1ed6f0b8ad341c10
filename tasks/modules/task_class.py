"""The Lightning module of each objective."""

from tasks import Config
from tasks.modules.evaluation import EvaluatedTask
from xformer_kit.objective import OBJECTIVES


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
