"""Kinds of components that have pages, and the first sentence of each page."""

import sys
from pathlib import PurePosixPath

from xformer_kit.config import GROUPS, NESTED_GROUPS
from xformer_kit.config.options.callbacks import CALLBACKS
from xformer_kit.extra import EXTRAS
from xformer_kit.metrics import METRICS
from xformer_kit.registry import Registry
from xformer_kit.study.design import DESIGNS

KINDS: dict[str, Registry] = (
    GROUPS | NESTED_GROUPS | {"extra": EXTRAS, "metrics": METRICS, "study.design": DESIGNS}
)
# Only if the package itself has callbacks, not only a user.
if any(component.__module__.startswith("xformer_kit.") for component in CALLBACKS.values()):
    KINDS["callbacks"] = CALLBACKS
# Kinds that share a module with others; other kinds have the first paragraph of their module.
DESCRIPTIONS = {
    "data": "Data to train on: corpora, pairs of texts, and generated probes.",
    "tokenizer": "Maps text to token ids.",
    "metrics": "Metrics of predictions, in addition to those that every run of a task has.",
    "logger": "Loggers that receive the metrics in addition to the CSV files of a run.",
    "ffn.expert": "Experts of a mixture: feed-forward networks.",
}


def description(kind: str) -> str:
    """Returns one or two sentences about a kind."""
    if kind in DESCRIPTIONS:
        return DESCRIPTIONS[kind]
    module = next(iter(KINDS[kind].values())).__module__
    described = module if "." in kind else ".".join(module.split(".")[:2])
    return " ".join((sys.modules[described].__doc__ or "").strip().split("\n\n")[0].split())


def page(kind: str, name: str) -> PurePosixPath:
    """Returns the path of a component's page from the root of the site, without a suffix."""
    return PurePosixPath("components", kind, name)
