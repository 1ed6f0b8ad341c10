"""Studies at several sizes: every variant is planned at each, a known effect comes back with its
trend, and all p-values are one family.
"""

import random
from dataclasses import replace
from itertools import product

import pytest
from statsmodels.stats.multitest import multipletests

from tasks.study.resolve import resolve
from tests.messages import messages
from tests.studies import changed, diverged, finished, report_of, study, variant
from xformer_kit.config import preflight
from xformer_kit.study import study_node
from xformer_kit.study.report.content import content
from xformer_kit.study.report.markdown import markdown

SIZES = {"model.dim=64": 1e5, "model.dim=128": 4e5, "model.dim=256": 16e5}
# Differences of post: 0.1 at the smallest size, and 0.05 more for each doubling. Of sandwich: only
# at the smallest size.
POST, SANDWICH = (0.1, 0.2, 0.3), (0.2, 0.0, 0.0)
NODE = {"sizes": [{"model.dim": 64}, {"model.dim": 128}, {"model.dim": 256}]}


def results(seeds=5):
    known, outcomes = [], []
    of_placement = [variant(), changed("placement", "post"), changed("placement", "sandwich")]
    for one, (size, params) in product(of_placement, SIZES.items()):
        cost = one["cost"] | {"params": params, "flops": 6e6 * params}
        off = 0.004 * (one["label"] == "placement=post" and params == 1e5)
        known.append(
            one | {"off": off, "cost": cost, "rung": {"name": size, "words": [size], "steps": 0}}
        )
    for index, seed in product(range(len(known)), range(seeds)):
        row, column = divmod(index, len(SIZES))
        effect = (0.0, POST[column], SANDWICH[column])[row]
        noise = random.Random(f"{index} {seed}").gauss(0, 0.003)
        outcomes.append(finished(index, seed, 3 - 0.3 * column + 0.02 * seed + effect + noise))
    return study(known, outcomes, **NODE)


@pytest.fixture(scope="module")
def found():
    return content(results())


def test_the_headline_names_the_sizes_at_which_a_difference_holds(found):
    """post differs everywhere, and sandwich only where its effect is not 0."""
    post, sandwich = found.sentence.split("; ")
    assert post.startswith("Compared with placement=pre, post: worse at all 3 sizes (by 0.")
    assert sandwich.startswith("sandwich: worse at model.dim=64 (by 0.")
    assert sandwich.endswith(", no significant difference at model.dim=128 and model.dim=256.")


def test_the_trend_is_the_slope_for_each_doubling(found):
    post, sandwich = (trend.slope for trend in found.trends)
    assert post.mean == pytest.approx(0.05, abs=0.003) and post.low < 0.05 < post.high
    # 0.2, 0, 0 at 0, 2, 4 doublings
    assert sandwich.mean == pytest.approx(-0.05, abs=0.003)
    assert (
        "For each doubling of the parameters the difference of placement=post"
        in (found.sentences[1])
    )


def test_p_values_of_all_sizes_are_one_family(found):
    """Equal to statsmodels."""
    verdicts = [one.verdict for size in found.sizes for one in size.variants[1:]]
    _, expected, *_ = multipletests([one.difference.p for one in verdicts], method="holm")
    assert [one.p for one in verdicts] == pytest.approx(list(expected))


def test_the_other_sections_are_of_the_largest_size(found):
    assert found.baseline.cost["params"] == max(SIZES.values())
    assert all(sentence.startswith("At model.dim=256: ") for sentence in found.sentences)
    small = next(one for size in found.sizes for one in size.variants[1:])
    assert small.off == 0.004 and "difference is 0.4 % (placement=post;" in found.matched
    page = markdown(report_of(results()))
    assert "### Differences at each size" in page and "### Trend with size" in page
    assert page.count("| placement=post | model.dim=") == 3 and "x 3 sizes" in page


def test_a_baseline_that_diverged_at_a_size_is_in_the_headline():
    whole = results()
    outcomes = [diverged(2, o.seed) if o.variant == 2 else o for o in whole.outcomes]
    said = content(replace(whole, outcomes=outcomes))
    end = " There is no run of placement=pre to compare with at model.dim=256."
    assert said.sentence.endswith(end)
    assert "is not tested: it needs two seeds that finished at every size." in said.sentences[1]


def planned(*words, **node):
    line = preflight(["study=norm_placement", "experiment=copy", "logger=none", *words])
    asked = line.study | {"claim": None, "seeds": 2, "factors": {"placement": ["post"]}} | node
    faults = messages(study_node.faults(asked))
    complete = None if faults else study_node.complete(asked, "here")
    return faults, complete and resolve(complete, line.compose, list(words))


def test_every_variant_is_planned_at_each_size_with_a_budget_of_its_own():
    sizes = [{"model.dim": 16, "attn.heads": 1}, {"model.dim": 32, "attn.heads": 2}]
    faults, plan = planned("model.layers=1", sizes=sizes)
    assert not faults
    names = ["model.dim=16 attn.heads=1", "model.dim=32 attn.heads=2"]
    assert [v.title for v in plan.variants] == [
        f"{name} {size}" for name in ("baseline", "placement=post") for size in names
    ]
    small, large, *others = plan.variants
    assert small.cost["params"] < large.cost["params"] / 2
    for one, base in zip(others, (small, large), strict=True):
        assert one.cost["params"] == pytest.approx(base.cost["params"], rel=0.01)
    assert plan.runs[0].words == ["placement=pre", "model.dim=16", "attn.heads=1", "seed=0"]
    assert len({run.key for run in plan.runs}) == 8


@pytest.mark.parametrize(
    ("node", "fault"),
    [
        ({"sizes": [{"model.dim": 64}]}, "study.sizes: must list two sizes or more"),
        ({"sizes": [{"model.dim": 64}] * 2}, "study.sizes: must be different"),
        ({"sizes": [{"seed": 1}, {"seed": 2}]}, "study.sizes: must set options of the model"),
        (
            NODE | {"budget": {"match": "params", "by": "model.dim"}},
            "study.budget.by: sets model.dim, as study.sizes does at every size",
        ),
        (
            NODE | {"factors": {"model.dim": [96]}, "baseline": {"model.dim": 64}},
            "study.factors.model.dim: sets model.dim, as study.sizes does at every size",
        ),
        (NODE | {"stop": {"after": 2}, "seeds": 4}, "study.sizes: is not for study.stop"),
        (NODE | {"design": {"name": "search"}}, "study.sizes: is not for design=search"),
    ],
)
def test_sizes_that_contradict_the_study_are_refused(node, fault):
    faults, _ = planned(**node)
    assert len(faults) == 1 and faults[0].startswith(fault), faults
