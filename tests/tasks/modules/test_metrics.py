"""Metrics of predicted texts against references."""

import math
import random

import pytest
import torch

from tasks.modules.split_metrics import SplitMetrics
from tasks.modules.text_metrics import rouge, text_metrics, translation_metrics
from xformer_kit.metrics.printed import format_metric

KINDS = ["rouge1", "rouge2", "rougeL"]


def test_rouge_by_hand():
    # 5 of 6 words are shared (the, the, cat, on, mat), 3 of 5 pairs (the cat, on the, the mat); the
    # longest common subsequence is `the cat on the mat`.
    found = rouge(["The cat sat on the mat."], ["the cat is on the mat"])
    assert found == pytest.approx(
        {"rouge1": 100 * 5 / 6, "rouge2": 100 * 3 / 5, "rougeL": 100 * 5 / 6}
    )
    # Precision 1, recall 1/2: F1 is 2/3. Only pairs and subsequences depend on the order.
    assert rouge(["a b"], ["a b c d"]) == pytest.approx(
        {"rouge1": 200 / 3, "rouge2": 50, "rougeL": 200 / 3}
    )
    assert rouge(["b a"], ["a b"]) == pytest.approx({"rouge1": 100, "rouge2": 0, "rougeL": 50})


def test_rouge_is_the_mean_over_examples_and_an_empty_answer_counts_as_nothing():
    found = rouge(["a b c", "", "x"], ["a b c", "a b", "y"], ("rouge1", "rougeL"))
    assert found == pytest.approx({"rouge1": 100 / 3, "rougeL": 100 / 3})


def test_rouge_counts_words_of_every_alphabet():
    assert rouge(["Die Straße ist grün"], ["die Straße war grün"])["rouge1"] == pytest.approx(75)
    assert rouge(["кот спит"], ["кот ест"])["rouge1"] == pytest.approx(50)


def texts(count):
    draw = random.Random(0)
    words = [
        "the",
        "a",
        "cat,",
        "dog",
        "sat",
        "Ran",
        "on_mat",
        "rug.",
        "it's",
        "12",
        "red;",
        "blue's",
    ]
    return [" ".join(draw.choices(words, k=draw.randint(1, 14))) for _ in range(count)]


def test_rouge_of_english_is_that_of_rouge_score():
    from rouge_score import rouge_scorer as scorer

    answers, right = texts(50)[:25], texts(50)[25:]
    each = [scorer.RougeScorer(KINDS).score(b, a) for a, b in zip(answers, right, strict=True)]
    expected = {
        kind: 100 * sum(score[kind].fmeasure for score in each) / len(each) for kind in KINDS
    }
    assert rouge(answers, right) == pytest.approx(expected)


def test_rouge_of_english_is_that_of_the_published_words():
    """Letters a to z and digits, the default words of torchmetrics and of `rouge_score`."""
    from torchmetrics.functional.text.rouge import rouge_score

    answers, right = texts(50)[:25], texts(50)[25:]
    expected = rouge_score(answers, right, rouge_keys=tuple(KINDS))
    expected = {kind: 100 * expected[f"{kind}_fmeasure"].item() for kind in KINDS}
    assert rouge(answers, right) == pytest.approx(expected)


def test_bleu_and_chrf_are_those_of_sacrebleu_as_published():
    """BLEU: words of tokenize=13a with their case (Post, 2018); chrF: F2 of up to 6 characters
    (Popović, 2015), recall of the reference. Predictions that are shorter than the reference, of
    other case or with punctuation have different scores.
    """
    from sacrebleu.metrics import BLEU, CHRF

    answers, right = [text.replace("a", "A")[: len(text) * 3 // 4] for text in texts(25)], texts(25)
    bleu = BLEU(
        lowercase=False,
        tokenize="13a",
        smooth_method="exp",
        max_ngram_order=4,
        effective_order=False,
    )
    chrf = CHRF(char_order=6, word_order=0, beta=2, lowercase=False, whitespace=False)
    for found in (text_metrics(answers, right), translation_metrics(answers, right)):
        assert found["bleu"] == pytest.approx(bleu.corpus_score(answers, [right]).score)
        assert found["chrf"] == pytest.approx(chrf.corpus_score(answers, [right]).score)
    others = [
        BLEU(tokenize="char").corpus_score(answers, [right]),
        BLEU(lowercase=True).corpus_score(answers, [right]),
        chrf.corpus_score(right, [answers]),
    ]
    wanted = [found["bleu"], found["bleu"], found["chrf"]]
    assert all(abs(a - b.score) > 1 for a, b in zip(wanted, others, strict=True))


def test_ter_is_edits_per_word_of_the_reference():
    assert translation_metrics(["a b c d x"], ["a b c d"])["ter"] == pytest.approx(
        25
    )  # one word to remove, of four
    assert translation_metrics(["a b c"], ["a b c d"])["ter"] == pytest.approx(
        25
    )  # one to insert, of four


def test_short_references_have_only_exact_match():
    assert text_metrics(["a"], ["a"]) == {"exact_match": 1}
    assert {"exact_match", "rougeL"} <= set(text_metrics(["a b c d"], ["a b c d"]))
    figures = {"exact_match", "bleu", "signature", "chrf", "ter", *KINDS}
    assert set(translation_metrics(["a"], ["b"])) == figures


def test_fractions_are_formatted_in_percent():
    assert format_metric("exact_match", 0.995) == "99.50 %"
    assert format_metric("bleu", 12.5) == "12.50"


def test_the_likelihood_of_a_mixture_is_over_all_tokens_and_over_those_of_each_part():
    """A part without a batch has no metrics."""
    parts = {"prose": 4.0, "code": None, "unseen": None}
    measured = SplitMetrics(2.0, parts, torch.device("cpu"))
    for part, nats, tokens in (("prose", 6.0, 2), ("code", 2.0, 4), ("prose", 4.0, 2)):
        measured.update(part, torch.tensor(nats), tokens)
    found = measured.compute()
    assert found == pytest.approx(
        {
            "loss": 1.5,
            "perplexity": math.exp(1.5),
            "bits_per_byte": 1.5 / math.log(2) / 2,
            "prose/loss": 2.5,
            "prose/perplexity": math.exp(2.5),
            "prose/bits_per_byte": 2.5 / math.log(2) / 4,
            "code/loss": 0.5,
            "code/perplexity": math.exp(0.5),
        }
    )
    measured.reset()
    measured.update(None, torch.tensor(3.0), 1)
    assert measured.compute()["loss"] == pytest.approx(3.0)


def test_without_a_loss_per_token_there_is_no_perplexity_also_before_the_first_batch():
    measured = SplitMetrics(None, {}, torch.device("cpu"), loss_unit="nats per text")
    assert measured.names() == ["loss"]
    measured.update(None, torch.tensor(3.0), 2)
    assert measured.compute() == {"loss": 1.5}
