"""Pages of published claims in docs/findings: the claim, its paper, the command, the cost, the
verdict, and what would change it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from xformer_kit.config import conf_dir
from xformer_kit.study.report.document import paper_url

PAGES = Path(__file__).parents[1] / "docs" / "findings"
MOST = 10  # variants of a study whose claim is repeated as a whole
FORETOLD = "a law fitted to the smaller runs foretells the loss of the largest"
RELATIONS = {"equal": "equal to", "no_worse": "no worse than"}


def page(name: str, found: dict[str, Any]) -> str:
    """Returns the page of a finding as Markdown. found: its entry in findings.json."""
    study = yaml.safe_load(Path(conf_dir(), "study", "findings", f"{name}.yaml").read_text())
    hours, url = found["training_seconds"] / 3600, paper_url(found["paper"])
    paper = f"[{found['paper']}]({url})" if url else found["paper"]
    blocks = [
        f"# {found['question']}",
        f"The claim ({paper}): {expected(study['study']['claim'])}.",
        f"## {found['outcome'].capitalize()}",
        _claim(found),
        f"**{found['answer']}**",
    ]
    if (PAGES / f"{name}.svg").exists():
        blocks.append(f"![The outcome drawn]({name}.svg)")
    blocks += [
        "\n".join(f"- {sentence}" for sentence in found["variants"]),
        "## Run it",
        f"    {found['command']}",
        f"{found['runs']} runs, {hours:.1f} hours of training in all, measured on"
        f" {found['cores']} cores of an {found['cpu']} on {found['time'][:10]} with torch"
        f" {found['versions']['torch']}.",
        "## What would change it",
        f"{_missing(found)}The runs are small and short. A larger size, which has not been run"
        f" here:\n\n    python train.py study=findings/gpu/{name}",
    ]
    return "\n\n".join(blocks) + "\n"


def expected(claim: Mapping[str, Any]) -> str:
    """Returns what is expected of which variants, those with one relation together; of a forecast
    without expectations, that it is right.
    """
    if (expect := claim.get("expect")) is None:
        return FORETOLD
    groups: dict[str, list[str]] = {}
    for one in [expect] if isinstance(expect, dict) else expect:
        relation = RELATIONS.get(one["is"], f"{one['is']} than")
        groups.setdefault(f"{relation} {one.get('than', 'baseline')}", []).append(one["variant"])
    return "; ".join(
        f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} {text}"
        for text, names in groups.items()
    )


def _claim(found: dict[str, Any]) -> str:
    """Returns the sentences on the claim; of many expectations only the first, since each variant
    has a sentence below.
    """
    whole = str(found["claim"])
    return whole if len(found["variants"]) <= MOST else whole.partition(". ")[0] + "."


def _missing(found: dict[str, Any]) -> str:
    if found["outcome"] != "inconclusive":
        return ""
    return "More seeds, `study.seeds=N`; finished runs are not repeated. "
