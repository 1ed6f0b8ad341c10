"""Small probes of every kind, and their examples as words."""

from tests.messages import messages
from xformer_kit.data.corpus import CORPORA
from xformer_kit.registry import Context

PROBES = sorted(
    name
    for name, component in CORPORA.items()
    if component.form == "labelled" and "xformer_kit" in component.__module__
)
SMALL = {
    "recall": {"vocabulary": 20, "length": 24, "pairs": 4},
    "induction": {"vocabulary": 5, "length": 12},
    "copy": {"length": 5},
    "reverse": {"length": 5},
    "sort": {"length": 5},
    "selective_copy": {"vocabulary": 4, "length": 12, "marked": 3},
    "addition": {"length": 3},
    "parity": {"length": 6},
    "dyck": {"types": 3, "depth": 3, "length": 14},
}


def make(name, **options):
    return CORPORA.create({"name": name, **SMALL[name], **options})


def words_of(probe, example):
    """The words of an example, with brackets [ ] around those that have a label."""
    words = probe.words()
    pairs = zip(example["tokens"].tolist(), example["labels"].tolist(), strict=True)
    return [f"[{words[t]}]" if label >= 0 else words[t] for t, label in pairs]


def sample(probe, split="train", count=200):
    data = probe.dataset(split)
    return [words_of(probe, data[i]) for i in range(count)]


def faults(name, **options):
    return messages(CORPORA.faults({"name": name, **options}, "data", Context()))


def bare(words):
    return [word.strip("[]") for word in words]
