"""The table of metrics, and names that end in one of its words."""

from pathlib import Path

import pytest

from tests.found_imports import ROOT
from xformer_kit.metrics import KNOWN, METRICS, TRAIN_LOSS, VAL_LOSS, direction, known_metric
from xformer_kit.metrics.printed import format_metric, metric_title
from xformer_kit.metrics.table import our_metric


def files_with(text: str) -> list[str]:
    files = [path for top in ("xformer_kit", "tasks") for path in (ROOT / top).rglob("*.py")]
    return [str(Path(file).relative_to(ROOT)) for file in files if text in file.read_text()]


def test_the_names_of_the_losses_are_written_in_one_file():
    assert files_with(f'"{VAL_LOSS}"') == ["xformer_kit/metrics/table.py"]
    assert files_with(f'"{TRAIN_LOSS}"') == ["xformer_kit/metrics/table.py"]


@pytest.mark.parametrize("name", ["loss", "val_loss", "eval_loss", "valid_loss", "test_loss"])
def test_a_loss_of_another_library_is_that_of_the_table(name):
    assert our_metric(name) == VAL_LOSS and our_metric("train_loss") == TRAIN_LOSS


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("loss", "loss"),
        ("val/books/loss", "loss"),
        ("test/hard_exact_match", "exact_match"),
        ("val/sequence_accuracy", "sequence_accuracy"),  # not accuracy, which it ends in too
        ("decoding_tokens_per_second", "tokens_per_second"),
        ("val/gloss", None),
        ("val/loss_of_mine", None),
    ],
)
def test_a_metric_is_known_by_the_longest_word_in_which_its_name_ends(name, word):
    assert known_metric(name) is (word and KNOWN[word])
    assert direction(name) is (KNOWN[word].higher_is_better if word else None)


def test_every_metric_that_a_config_can_name_is_known():
    assert {name for name in METRICS if known_metric(f"val/{name}") is None} == set()


def test_a_value_is_printed_with_the_digits_and_the_unit_of_its_metric():
    assert format_metric("loss", 1.23456) == "1.2346 nats per token"
    assert format_metric("bits_per_byte", 1.23456) == "1.2346"
    assert format_metric("perplexity", 12.3456) == "12.35"
    assert format_metric("test/hard_exact_match", 0.5) == "50.00 %"
    assert (
        format_metric("mean_rank", 12.3456) == "12.35"
        and format_metric("tokens", 1e4) == "10,000.0"
    )
    assert [metric_title(name) for name in ("rougeL", "exact_match", "mine")] == [
        "ROUGE-L",
        "exact match",
        "mine",
    ]
