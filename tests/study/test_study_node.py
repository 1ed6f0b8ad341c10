"""What a report could not answer is refused before the first run."""

import pytest

from tests.messages import messages
from xformer_kit.config import compose, preflight
from xformer_kit.registry import ConfigError
from xformer_kit.study import study_node
from xformer_kit.study.plan import variants

NODE = {"factors": {"placement": ["post", "output"]}, "baseline": {"placement": "pre"}}


def composed(words: list[str]):
    return {"words": words, "seed": 0}, []


def test_a_metric_needs_a_known_direction():
    assert (
        messages(study_node.faults(NODE))
        == []
        == messages(study_node.faults({**NODE, "metric": "test/accuracy"}))
    )
    (fault,) = messages(study_node.faults({**NODE, "metric": "val/los"}))
    assert fault.startswith(
        "study.metric: it is not known whether 'val/los' is better higher or lower. Did you mean"
        " 'val/loss'?"
    )
    assert fault.endswith("study.higher_is_better=true, or false.")


@pytest.mark.parametrize("name", ["claim", "baseline", "factors", "budget", "tune", "stop"])
def test_a_value_that_must_be_a_mapping_is_refused(name):
    assert messages(study_node.faults({**NODE, name: True})) == [
        f"study.{name}: must be a mapping or null; got true."
    ]


def test_direction_of_a_user_metric():
    assert (
        messages(study_node.faults({**NODE, "metric": "val/surprise", "higher_is_better": False}))
        == []
    )
    assert (
        messages(study_node.faults({**NODE, "metric": "val/accuracy", "higher_is_better": True}))
        == []
    )
    (fault,) = messages(
        study_node.faults({**NODE, "metric": "val/loss", "higher_is_better": True})
    )  # of another metric, left over
    assert fault.startswith(
        "study.higher_is_better: val/loss is better lower; got true. Set it to null"
    )


def test_the_command_line_replaces_values_of_the_file():
    """Hydra itself would merge the mapping of the command line into that of the file; `+` does."""
    line = ["study=norm_placement", "study.claim=null"]
    asked = preflight([*line, "study.factors={norm: [layer]}", "study.baseline={norm: rms}"]).study
    assert (asked["factors"], asked["baseline"]) == ({"norm": ["layer"]}, {"norm": "rms"})
    more = preflight([*line, "+study.factors={norm: [layer]}", "+study.baseline={norm: rms}"])
    assert more.study["baseline"] == {"placement": "pre", "norm": "rms"}
    assert set(more.study["factors"]) == {"placement", "norm"}
    assert (
        "+study.factors={norm: [layer]}" in more.argv
    )  # which is what a study says is to be typed to go on


@pytest.mark.parametrize("way", ["equal", "no_worse"])
def test_claims_of_equal_and_no_worse_need_a_margin(way):
    def of(**margin):
        claim = {"paper": "x", "expect": [{"variant": "placement=post", "is": way}]}
        return variants(study_node.complete({**NODE, "claim": claim, **margin}, "asked"), composed)

    with pytest.raises(ConfigError) as error:
        of()
    said = f"study.margin: must be set, because the claim expects '{way}'; got null. Try 0.05."
    assert error.value.messages == (said,)
    assert of(margin=0.1)


def test_a_claim_names_variants_of_the_study():
    def claiming(variant: str):
        claim = {"paper": "x", "expect": {"variant": variant, "is": "worse"}}
        node = {**NODE, "claim": claim, "labels": {"placement=output": "OLMo 2"}}
        return variants(study_node.complete(node, "norms"), composed)

    assert [v.name for v in claiming("placement=post")] == ["baseline", "placement=post", "OLMo 2"]
    assert claiming("OLMo 2") and claiming("placement=output")
    with pytest.raises(ConfigError) as error:
        claiming("placement=pots")
    assert list(error.value.messages) == [
        "study.claim.expect.variant: no variant is called 'placement=pots'. Did you mean"
        " 'placement=post'? Known: baseline, placement=post, placement=output, OLMo 2. Or study"
        " without a claim: study.claim=null."
    ]


def test_a_metric_of_a_callback_of_ones_own_may_be_that_of_a_study():
    config = compose(data=False)
    node = {"metric": "val/mine_loss", "also": ["mine"]}

    def refused(*callbacks):
        own = config | {"callbacks": {name: {} for name in callbacks}}
        return [fault.path for fault in study_node.result_faults(node, own)]

    assert refused() == refused("norms", "early_stopping") == ["study.metric", "study.also"]
    assert refused("norms", "mine") == ["study.also"]
