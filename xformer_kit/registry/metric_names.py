"""Words in the names of metrics, their units, and whether a higher value is better."""

import re

# Last word of a metric's name -> unit.
LOWER = {
    "loss": "nats",
    "perplexity": "",
    "bits_per_byte": "bits per byte",
    "bits_per_token": "bits per token",
    "ter": "points",
    "seconds": "s",
    "params": "",
    "flops": "",
    "flops_per_token": "FLOPs",
    "peak_memory_bytes": "bytes",
    **dict.fromkeys(("calibration_error", "word_error_rate", "character_error_rate"), "points"),
}
HIGHER = dict.fromkeys(
    (
        *("accuracy", "exact_match", "sequence_accuracy", "bleu", "chrf"),
        *("rouge1", "rouge2", "rougeL", "matthews", "pearson", "spearman"),
    ),
    "points",
) | {"f1": "points", "tokens_per_second": "tokens/s"}
OF_RUNS = {  # not of a validation
    *("seconds", "params", "flops", "flops_per_token", "peak_memory_bytes", "tokens_per_second")
}
PREFIX = "val/"  # of the metrics of the validation split
TRAIN_LOSS = "train/loss"
# What other libraries begin the names of metrics of the validation with: val_loss, eval_loss.
OTHER_PREFIX = re.compile(r"^(val|valid|validation|eval|dev|test)_")


def our_name(metric: str) -> str:
    """Returns the name here of a metric that another library calls loss, val_loss or eval_loss."""
    last = metric.rpartition("/")[2]
    return TRAIN_LOSS if last == "train_loss" else PREFIX + (OTHER_PREFIX.sub("", last) or "loss")


def is_per_token(metric: str) -> bool:
    """Whether a metric is a mean over tokens, which does not compare between tokenizers."""
    return metric_word(metric) in ("loss", "perplexity", "bits_per_token")


def metric_word(name: str) -> str | None:
    """Returns the word in which a metric's name ends: val/books/hard_exact_match -> exact_match;
    None if it is unknown.
    """
    last = name.rpartition("/")[2]
    known = [word for word in (*LOWER, *HIGHER) if last == word or last.endswith(f"_{word}")]
    return max(known, key=len, default=None)
