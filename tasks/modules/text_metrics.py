"""Metrics of generated texts against references."""

import importlib.util
import re
from collections.abc import Sequence

from tasks import Metrics
from xformer_kit.registry import config_error


def text_metrics(predictions: list[str], references: list[str]) -> Metrics:
    """Returns exact_match, the fraction of predictions that equal their reference. If a reference
    has at least four words, also ROUGE-L and, with sacrebleu installed, BLEU and chrF, in percent.
    """
    metrics = {"exact_match": _exact_match(predictions, references)}
    if not any(text.count(" ") >= 3 for text in references):
        return metrics
    if importlib.util.find_spec("sacrebleu"):
        import sacrebleu

        metrics["bleu"] = sacrebleu.corpus_bleu(predictions, [references]).score
        metrics["chrf"] = sacrebleu.corpus_chrf(predictions, [references]).score
    return metrics | rouge(predictions, references, ("rougeL",))


def rouge(
    predictions: list[str],
    references: list[str],
    names: Sequence[str] = ("rouge1", "rouge2", "rougeL"),
) -> Metrics:
    """F1 of shared n-grams (rouge1, rouge2) and of the longest common subsequence of words
    (rougeL), in percent, each the mean over the examples (Lin, 2004,
    https://aclanthology.org/W04-1013, sections 2 and 3).

    Words are runs of letters and digits in lower case, not stemmed. `rouge_score` supports a to z
    only, with equal results; this supports any alphabet.
    """
    from torchmetrics.functional.text.rouge import rouge_score

    scores = rouge_score(
        predictions,
        references,
        # rougeLsum is not supported: torchmetrics downloads nltk's data to split sentences
        rouge_keys=tuple(names),
        normalizer=lambda text: re.sub(r"[\W_]+", " ", text.lower()),
        tokenizer=str.split,
    )
    return {name: 100 * scores[f"{name}_fmeasure"].item() for name in names}


def translation_metrics(predictions: list[str], references: list[str]) -> dict[str, float | str]:
    """Returns exact_match; BLEU (with sacrebleu's signature), chrF, TER and ROUGE in percent.
    Raises ConfigError if sacrebleu is not installed.
    """
    try:
        from sacrebleu.metrics import BLEU, CHRF, TER
    except ImportError:
        raise config_error(
            "sacrebleu",
            "is not installed, and BLEU, chrF and TER need it",
            fix="Use pip install sacrebleu.",
        ) from None
    metrics: dict[str, float | str] = {"exact_match": _exact_match(predictions, references)}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        metrics[name] = metric.corpus_score(predictions, [references]).score
        if name == "bleu":
            metrics["signature"] = str(metric.get_signature())
    return metrics | rouge(predictions, references)


def _exact_match(predictions: list[str], references: list[str]) -> float:
    """The fraction of predictions that equal their reference."""
    return sum(a == b for a, b in zip(predictions, references, strict=True)) / len(references)
