"""The Lightning module of sequence-to-sequence tasks: answers are generated and compared with the
targets.
"""

from collections.abc import Sequence
from typing import Any

from tasks import Metrics
from tasks.generation.decoding import first_answers
from tasks.modules.configured_metrics import text_measures
from tasks.modules.evaluation import EvaluatedTask, Sample
from tasks.modules.text_metrics import text_metrics
from tasks.process.ranks import DataRank, all_gather


class Seq2SeqTask(EvaluatedTask):
    """Sequence to sequence. Adds the metrics of greedy or beam-search answers: exact match and, if
    targets are texts of several words, ROUGE-L, BLEU and chrF.
    """

    def validation_metrics(self) -> Metrics:
        """Metrics of `task.decoded` examples, spread evenly over the split; each rank generates the
        answers of its share, and those of a sharded model all answers.
        """
        count, split = self.config["task"]["decoded"], self.data.prepared.valid
        rank, world = DataRank.of_generation(self)
        indices = range(0, len(split), max(1, len(split) // max(1, count)))[:count]
        pairs = self._pairs(split, indices[rank::world])
        per_rank = all_gather(pairs, world)
        return self._metrics([pair for pairs in per_rank for pair in pairs])

    def test_metrics(self) -> Metrics:
        """Metrics of all examples of the test split and of other splits, such as other_bleu; no
        answers if `task.test` is false.
        """
        if not self.config["task"]["test"]:
            return super().test_metrics()
        prepared = self.data.prepared
        metrics = super().test_metrics()
        for name, split in {"test": prepared.test, **prepared.other_splits}.items():
            prefix = "" if name == "test" else f"{name}_"
            if split is not None:
                split_metrics = self._metrics(self._pairs(split, range(len(split))))
                metrics |= {f"{prefix}{key}": value for key, value in split_metrics.items()}
        return metrics

    def sample(self) -> Sample | None:
        split = self.data.prepared.valid
        ((generated, expected),) = self._pairs(split, [0])
        source = self.data.prepared.source_tokenizer.decode(split[0]["source"])
        return Sample(source, generated, expected)

    def _metrics(self, pairs: list[tuple[str, str]]) -> Metrics:
        """Metrics of (answer, target) pairs; {} without pairs."""
        if not pairs:
            return {}
        return text_metrics(*map(list, zip(*pairs, strict=True))) | text_measures(
            self.config, pairs
        )

    def _pairs(self, split: Any, indices: Sequence[int]) -> list[tuple[str, str]]:
        """Returns (answer, target) of each example, as text."""
        examples = [split[i] for i in indices]
        decode, beam = self.data.prepared.tokenizer.decode, self.config["task"]["beam"]
        max_new_tokens = self.config["data"]["seq_len"]
        options = {"beam": beam} if beam > 1 else {"temperature": 0.0}
        with self.sampling():
            answers = first_answers(self, examples, max_new_tokens=max_new_tokens, **options)
        return [
            (decode(answer), decode(example["target"]))
            for answer, example in zip(answers, examples, strict=True)
        ]
