"""The section of a report on the weights from which the runs start, `init_from`."""

from collections.abc import Mapping
from typing import Any

from xformer_kit.study.report.content import Content
from xformer_kit.study.report.document import Section, Table
from xformer_kit.text.tensor_lists import not_copied

TITLE = "Starting weights"
DIGITS = 12  # of a hash


def starting_weights(content: Content) -> Section:
    """The sources of the runs, and a table of what each variant copies; empty if all runs start
    from initial values.
    """
    found: dict[str, Mapping[str, Any]] = {}  # of a finished run of each variant
    for variant in content.variants:
        for one in content.results.outcomes_of(variant.best.index):
            if isinstance(entry := one.facts.get("init_from"), Mapping):
                found.setdefault(variant.full_name, entry)
    of_source: dict[str, list[str]] = {}
    for name, entry in found.items():
        of_source.setdefault(_source(entry), []).append(name)
    text = [
        f"{_starting(names, len(content.variants))} from {source}."
        for source, names in of_source.items()
    ]
    rows = [
        [name, f"{entry.get('copied', 0):,}", "; ".join(not_copied(entry)) or "-"]
        for name, entry in found.items()
    ]
    header = ["variant", "tensors copied", "others"]
    return Section(TITLE, text, tables=[Table(TITLE, header, rows, text=(2,))])


def _source(entry: Mapping[str, Any]) -> str:
    """The source of a run, its step, and the hash of its weights."""
    step, digest = entry.get("step", 0), entry.get("sha256", "")[:DIGITS]
    return f"{entry.get('source')} ({entry.get('checkpoint')}, step {step:,}, sha256 {digest})"


def _starting(names: list[str], count: int) -> str:
    """The subject and verb of a sentence on variants; count: of all variants."""
    if len(names) == count:
        return "All variants start"
    return f"{', '.join(names)} {'starts' if len(names) == 1 else 'start'}"
