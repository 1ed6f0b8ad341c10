"""Metrics over a whole split and all ranks."""

import importlib.util
import math
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from tasks import Figures
from tasks.run.faults import refusal

TITLES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
}


class Likelihood(Metric):
    """Cross-entropy per token, perplexity and, of a text, bits per byte, from sums; every token
    counts the same.

    loss = nats / tokens; perplexity = exp(loss); bits per byte = loss / ln 2 / (bytes per token).
    bytes_per_token: UTF-8 bytes of the split per token of it; None if it is not text.
    """

    full_state_update = False
    higher_is_better = False
    is_differentiable = False
    nats: Tensor
    tokens: Tensor

    def __init__(self, bytes_per_token: float | None, dtype: torch.dtype = torch.float64):
        super().__init__()
        self.bytes_per_token = bytes_per_token
        self.add_state("nats", torch.zeros((), dtype=dtype), dist_reduce_fx="sum")
        self.add_state("tokens", torch.zeros((), dtype=dtype), dist_reduce_fx="sum")

    def update(self, nats: Tensor, tokens: Tensor | int) -> None:
        """nats: the sum of cross-entropies of a batch; tokens: how many."""
        self.nats += nats
        self.tokens += tokens

    def compute(self) -> Figures:
        loss = (self.nats / self.tokens).item()
        return figures(loss, self.bytes_per_token)


def figures(loss: float, bytes_per_token: float | None) -> Figures:
    """A loss in nats per token, and the same in the field's other units."""
    found = {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}
    if bytes_per_token is not None:
        found["bits_per_byte"] = loss / math.log(2) / bytes_per_token
    return found


class SplitLikelihood:
    """The likelihood of a split, and of each part of a mixture."""

    def __init__(
        self,
        bytes_per_token: float | None,
        parts: Mapping[str, float | None],
        device: torch.device,
    ):
        dtype = torch.float32 if device.type == "mps" else torch.float64  # mps has no fp64
        self.whole = Likelihood(bytes_per_token, dtype).to(device)
        self.parts = {name: Likelihood(size, dtype).to(device) for name, size in parts.items()}

    def update(self, part: str | None, nats: Tensor, tokens: Tensor | int) -> None:
        self.whole.update(nats, tokens)
        if part in self.parts:
            self.parts[part].update(nats, tokens)

    def compute(self) -> Figures:
        """loss, ..., and prose/loss, ... of each part that any rank had a batch of."""
        found = self.whole.compute()
        for part, likelihood in self.parts.items():
            likelihood.update(likelihood.nats.new_zeros(()), 0)  # this rank may have had none
            measured = likelihood.compute()
            if not math.isnan(measured["loss"]):
                found |= {f"{part}/{name}": value for name, value in measured.items()}
        return found

    def reset(self) -> None:
        for likelihood in (self.whole, *self.parts.values()):
            likelihood.reset()


def validation_line(figures: Figures) -> str:
    """A validation in one line."""
    said = []
    for name, value in figures.items():
        part, _, figure = name.rpartition("/")  # of a mixture
        if figure == "loss":
            said.append(f"{part or 'validation loss'} {value:.4f}")
        elif name == "bits_per_byte":
            said.append(f"{value:.4f} bits per byte")
        elif not part and name != "perplexity":
            said.append(f"{titled(name)} {written(name, value)}")
    return ", ".join(said)


def titled(name: str) -> str:
    return TITLES.get(name) or name.replace("_", " ")


def written(name: str, value: float | str) -> str:
    """A figure with its digits and its unit: exact_match 0.995 -> 99.50 %."""
    if isinstance(value, str):
        return value
    if name in SHARES:
        return f"{100 * value:.2f} %"
    if name == "tokens":
        return f"{value:,}"
    digits = 4 if name in ("loss", "bits_per_byte") else 2
    return f"{value:.{digits}f}" + (" nats per token" if name == "loss" else "")


SHARES = ("exact_match", "accuracy", "sequence_accuracy")


def text_figures(answers: Sequence[str], right: Sequence[str]) -> Figures:
    """exact_match, the share of answers that equal the target; if a target has four words or more,
    also ROUGE-L and, with sacrebleu installed, BLEU and chrF, in percent.
    """
    found = {"exact_match": _exact(answers, right)}
    if not any(text.count(" ") >= 3 for text in right):
        return found
    if importlib.util.find_spec("sacrebleu"):
        import sacrebleu

        found["bleu"] = sacrebleu.corpus_bleu(list(answers), [list(right)]).score
        found["chrf"] = sacrebleu.corpus_chrf(list(answers), [list(right)]).score
    return found | rouge(answers, right, ("rougeL",))


def rouge(
    answers: Sequence[str],
    right: Sequence[str],
    kinds: Sequence[str] = ("rouge1", "rouge2", "rougeL"),
) -> Figures:
    """F1 of shared n-grams (rouge1, rouge2) and of the longest common subsequence of words
    (rougeL), in percent, each the mean over the examples (Lin, 2004,
    https://aclanthology.org/W04-1013, sections 2 and 3).

    Words are runs of letters and digits in lower case, not stemmed. `rouge_score` supports a to z
    only, with equal results; this supports any alphabet.
    """
    from torchmetrics.functional.text.rouge import rouge_score

    found = rouge_score(
        list(answers),
        list(right),
        rouge_keys=tuple(
            kinds
        ),  # rougeLsum is not one of ours: it splits sentences with a download of nltk's
        normalizer=lambda text: re.sub(r"[\W_]+", " ", text.lower()),
        tokenizer=str.split,
    )
    return {kind: 100 * found[f"{kind}_fmeasure"].item() for kind in kinds}


def compared(answers: Sequence[str], right: Sequence[str]) -> dict[str, float | str]:
    """exact_match; BLEU (with sacrebleu's signature), chrF, TER and ROUGE in percent. Raises
    ConfigError without sacrebleu.
    """
    try:
        from sacrebleu.metrics import BLEU, CHRF, TER
    except ImportError:
        raise refusal(
            "sacrebleu",
            "is not installed, and BLEU, chrF and TER need it",
            fix="Use pip install sacrebleu.",
        ) from None
    found: dict[str, float | str] = {"exact_match": _exact(answers, right)}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF()), ("ter", TER())):
        found[name] = metric.corpus_score(list(answers), [list(right)]).score
        if name == "bleu":
            found["signature"] = str(metric.get_signature())
    return found | rouge(answers, right)


def _exact(answers: Sequence[str], right: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(answers, right, strict=True)) / len(right)
