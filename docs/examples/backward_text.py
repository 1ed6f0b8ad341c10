"""A task: python train.py components=[docs/examples/backward_text.py] task=backward_text"""

from dataclasses import dataclass

from xformer_kit.objective import OBJECTIVES
from xformer_kit.objective.language_modeling import LanguageModeling


@OBJECTIVES.register("backward_text")
@dataclass(kw_only=True, eq=False)
class BackwardText(LanguageModeling):
    """-sum log p(token | the tokens after it): a language model of reversed texts (ELMo: Peters et
    al., 2018, arXiv:1802.05365, section 3.1).
    """

    text_use = ""  # what it generates is no text

    def example(self, example, draw):
        return {name: field[::-1].copy() for name, field in example.items()}
