"""Words in the names of metrics, their units, and whether a higher value is better."""

from xformer_kit.registry.fault import Fault, Faults
from xformer_kit.registry.messages import Options, did_you_mean

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
PREFIX = "val/"  # of the metrics of the validation split
TRAIN_LOSS = "train/loss"


def metric_word(name: str) -> str | None:
    """Returns the word in which a metric's name ends: val/books/hard_exact_match -> exact_match;
    None if it is unknown.
    """
    last = name.rpartition("/")[2]
    known = [word for word in (*LOWER, *HIGHER) if last == word or last.endswith(f"_{word}")]
    return max(known, key=len, default=None)


def mode_of(metric: str, mode: str | None) -> str:
    """Returns min or max: `mode`, or if that is None the direction of a metric that `metric_faults`
    accepts.
    """
    return mode or ("max" if metric_word(metric) in HIGHER else "min")


def metric_faults(options: Options, name: str) -> Faults:
    """Yields the faults of the options `name`, a metric of the validation or the training loss, and
    `mode`, whether a low (min) or a high (max) value is better; None: by the metric's name. For a
    component's `check`.
    """
    metric = getattr(options, name)
    last = metric.rpartition("/")[2]
    if metric != TRAIN_LOSS and (not metric.startswith(PREFIX) or not last):
        rule = f"must be a metric of the validation, {PREFIX}..., or {TRAIN_LOSS}"
        yield Fault(name, rule, repr(metric), f"Try {PREFIX}{last or 'loss'}.")
    elif options.mode is None and metric_word(metric) is None:
        rule = f"it is not known whether a low or a high '{metric}' is better"
        fix = f"{did_you_mean(last, (*LOWER, *HIGHER))}Add mode=min or mode=max."
        yield Fault(name, rule, fix=fix)
