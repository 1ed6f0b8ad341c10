"""Laws of components that are not part of a model: optimizers, schedules, objectives, corpora,
tokenizers, initialisations. Each kind has a file with its laws.
"""

from xformer_kit.laws.kinds import corpus, init, objective, optim, schedule, tokenizer
from xformer_kit.laws.kinds.registry import KIND_LAWS
from xformer_kit.laws.kinds.running import Outcome, check_laws_of_kind

__all__ = ["KIND_LAWS", "Outcome", "check_laws_of_kind"]
