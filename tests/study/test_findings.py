"""Published claims as studies: each composes in every variant, says whose claim it is, and what is
expected of which variant.
"""

import re
from pathlib import Path

import pytest

from tests.messages import messages
from xformer_kit import ConfigError
from xformer_kit.config import conf_dir, preflight
from xformer_kit.study import claim, study_node
from xformer_kit.study.metric import metric
from xformer_kit.study.plan import seeds, variants, words_of

pytestmark = pytest.mark.extended

FOLDER = Path(conf_dir(), "study", "findings")
FINDINGS = sorted(file.stem for file in FOLDER.glob("*.yaml"))
LARGE_ALONE = sorted({file.stem for file in FOLDER.glob("gpu/*.yaml")} - set(FINDINGS))
PAPER = re.compile(r"[A-Z].+, \d{4}, arXiv:\d{4}\.\d{5}")


def asked(name, *more):
    """The complete node of a study, and what composes its variants."""
    line = preflight([f"study=findings/{name}", "logger=none", *more])
    assert messages(study_node.faults(line.study)) == []
    return study_node.complete(line.study, line.study["name"]), line.compose


def rows(config):
    """Sequences that a run trains on."""
    return config["trainer"]["max_steps"] * config["data"]["batch_size"]


def claimed(node, compose):
    """The variants, of which something is claimed that they can show; a forecast compares none."""
    found = variants(node, compose)
    assert PAPER.match(node["claim"]["paper"]) and node["question"].endswith("?")
    assert metric(node["metric"]) and len(seeds(node, 0)) >= (1 if node["forecast"] else 5)
    assert ("expect" in node["claim"]) != node["forecast"]
    expect = node["claim"].get("expect", [])
    assert messages(claim.faults(expect, [variant.name for variant in found])) == []
    within = re.search(
        "equal|no_worse", str(expect)
    )  # of a margin, without which it cannot be shown
    assert node["margin"] or not within
    return found


@pytest.mark.parametrize("name", FINDINGS)
def test_a_finding_claims_something_of_its_variants_and_has_a_larger_size(name):
    node, compose = asked(name)
    found = claimed(node, compose)
    large, compose = asked(f"gpu/{name}")
    assert [large[key] for key in ("question", "claim", "metric")] == [
        node[key] for key in ("question", "claim", "metric")
    ]
    assert large["name"] == f"{name}_gpu" != node["name"]  # the directory of its plan
    factors, chosen = study_node.levels_of(large)
    assert (
        messages(
            claim.faults(
                large["claim"].get("expect", []),
                [study_node.label(factors, levels) for levels in chosen],
            )
        )
        == []
    )
    config, faults = compose(words_of(factors, chosen[0]))
    assert faults == [] and rows(config) >= 8 * rows(found[0].config)
    assert config["model"]["dim"] >= found[0].config["model"]["dim"]


def test_a_finding_that_has_no_small_size_claims_something_of_its_variants(tmp_path):
    assert LARGE_ALONE == ["relative_positions_cogs"]
    for split in ("train", "dev", "test", "gen"):
        (tmp_path / f"{split}.tsv").write_text("A cat ran .\tcat ( x _ 1 )\tin_distribution\n")
    node, compose = asked("gpu/relative_positions_cogs", f"data.path={tmp_path}")
    assert len(claimed(node, compose)) == 2 and node["name"] == "relative_positions_cogs_gpu"


def test_an_unknown_finding_is_refused_with_the_nearest_name():
    answer = (
        r"^study: no choice is called 'findings/gpu/qk_nrm'\. Did you mean 'findings/gpu/qk_norm'\?"
    )
    with pytest.raises(ConfigError, match=answer):
        preflight(["study=findings/gpu/qk_nrm"])
