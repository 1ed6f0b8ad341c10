"""The Lightning module of sequence-to-sequence tasks: answers are decoded and compared with the
targets.
"""

from collections.abc import Sequence
from typing import Any

import torch

from tasks import Figures
from tasks.evaluation import EvaluatedTask, Sample
from tasks.metrics import text_figures
from tasks.run.generation.decoding import answers
from tasks.run.ranks import gathered


class Seq2SeqTask(EvaluatedTask):
    """Adds exact match, and BLEU and chrF where the target is a text of several words, of greedy or
    beam answers.
    """

    def measure(self) -> Figures:
        """Of some examples, spread over the split; each rank answers its share of them."""
        count, split = self.config["task"]["decoded"], self.data.prepared.valid
        trainer = self.trainer
        some = range(0, len(split), max(1, len(split) // max(1, count)))[:count]
        mine = self._pairs(split, some[trainer.global_rank :: trainer.world_size])
        every = gathered(mine, trainer.world_size)
        return self._figures([pair for pairs in every for pair in pairs])

    def final(self) -> Figures:
        if not self.config["task"]["test"]:
            return {}
        prepared = self.data.prepared
        found: Figures = {}
        for name, split in {"test": prepared.test, **prepared.others}.items():
            if split is not None:
                figures = self._figures(self._pairs(split, range(len(split))))
                found |= {
                    key if name == "test" else f"{name}_{key}": value
                    for key, value in figures.items()
                }
        return found

    def sample(self) -> Sample | None:
        split = self.data.prepared.valid
        ((written, wanted),) = self._pairs(split, [0])
        return Sample(
            self.data.prepared.source_tokenizer.decode(split[0]["source"]), written, wanted
        )

    def _figures(self, pairs: list[tuple[str, str]]) -> Figures:
        return text_figures([a for a, _ in pairs], [b for _, b in pairs]) if pairs else {}

    def _pairs(self, split: Any, indices: Sequence[int]) -> list[tuple[str, str]]:
        """(answer, right answer) of examples, as text."""
        examples = [split[i] for i in indices]
        decode, beam = self.data.prepared.tokenizer.decode, self.config["task"]["beam"]
        most = self.config["data"]["seq_len"]
        with self.sampling(), torch.inference_mode():
            options = {"beam": beam} if beam > 1 else {"temperature": 0.0}
            found = answers(self, examples, most=most, **options)
        return [(decode(a), decode(e["target"])) for a, e in zip(found, examples, strict=True)]
