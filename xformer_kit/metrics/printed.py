"""The printed form of metrics by themselves, without an interval."""

from collections.abc import Mapping

from xformer_kit.metrics.table import KNOWN, known_metric

COUNTS = ("tokens", "texts", "bytes", "unknown")


def metric_title(name: str) -> str:
    """Returns the name of a metric in text: rougeL -> ROUGE-L, exact_match -> exact match."""
    return (name in KNOWN and KNOWN[name].title) or name.replace("_", " ")


def format_metric(name: str, value: float | str, loss_unit: str = "nats per token") -> str:
    """Returns a metric with its digits and its unit: exact_match 0.995 -> 99.50 %."""
    if isinstance(value, str):
        return value
    if name in COUNTS:
        return f"{value:,}"
    known = known_metric(name)
    if known is None:  # a configured metric
        return f"{value:.4g}"
    if known.share:
        return f"{100 * value:.2f} %"
    return f"{value:.{known.digits}f}" + (f" {loss_unit}" if name == "loss" else "")


def format_validation(metrics: Mapping[str, float]) -> str:
    """Returns the metrics of a validation as one line of text."""
    texts = []
    for name, value in metrics.items():
        part, _, metric = name.rpartition("/")  # of a mixture
        if metric == "loss":
            texts.append(f"{part or 'validation loss'} {value:.4f}")
        elif name == "bits_per_byte":
            texts.append(f"{value:.4f} bits per byte")
        elif not part and name != "perplexity":
            texts.append(f"{metric_title(name)} {format_metric(name, value)}")
    return ", ".join(texts)
