"""Which kinds of components have pages, and what is each about?"""

import sys
from pathlib import PurePosixPath

from xformer_kit.config import GROUPS, INNER
from xformer_kit.config.callbacks import CALLBACKS
from xformer_kit.extra import EXTRAS
from xformer_kit.registry import Registry
from xformer_kit.study.design import DESIGNS

KINDS: dict[str, Registry] = GROUPS | INNER | {"extra": EXTRAS, "study.design": DESIGNS}
if any(
    component.__module__.startswith("xformer_kit.") for component in CALLBACKS.values()
):  # not a user's own alone
    KINDS["callbacks"] = CALLBACKS
# Kinds that share a file, or a room, with others; the others are introduced by the docstring of
# their own.
QUESTIONS = {
    "data": "What is read? Corpora, pairs, and probes that are generated.",
    "tokenizer": "What is a token?",
    "logger": "Where are metrics logged next to the csv files that every run writes?",
    "ffn.expert": "What is an expert of a mixture? A feed-forward network of its own.",
}


def question(kind: str) -> str:
    """What a kind is about, in a sentence or two."""
    if kind in QUESTIONS:
        return QUESTIONS[kind]
    module = next(iter(KINDS[kind].values())).__module__
    room = module if "." in kind else ".".join(module.split(".")[:2])
    return " ".join((sys.modules[room].__doc__ or "").strip().split("\n\n")[0].split())


def page(kind: str, name: str) -> PurePosixPath:
    """Where the page of a component lies, from the site's root, without an ending."""
    return PurePosixPath("components", kind, name)
