"""The noise of one run: the interval of a standard deviation, and runs in which one source of
random numbers differs.
"""

import numpy as np
import pytest

from tasks.study.resolve import resolve
from tests.messages import messages
from tests.studies import changed, finished, report_of, study, variant
from xformer_kit.config import preflight
from xformer_kit.registry import ConfigError
from xformer_kit.study import study_node
from xformer_kit.study.noise import SOURCES
from xformer_kit.study.report.content import content
from xformer_kit.study.report.markdown import markdown
from xformer_kit.study.statistics import standard_deviation

TINY = ["experiment=copy", "model.layers=1", "logger=none"]


def planned(*words, **node):
    line = preflight(["study=norm_placement", *TINY, *words])
    asked = line.study | {"claim": None, "seeds": 3, "factors": {"placement": ["post"]}} | node
    if faults := list(study_node.faults(asked)):
        raise ConfigError(faults)
    return resolve(study_node.complete(asked, "here"), line.compose, list(words))


def test_intervals_of_a_standard_deviation_contain_it_in_95_percent():
    """2,000 draws of five normal values; their share of 0.95 has a standard error of 0.005."""
    draws = np.random.default_rng(0).normal(3.0, 2.0, (2000, 5))
    found = [standard_deviation(values) for values in draws]
    assert abs(np.mean([one.low < 2.0 < one.high for one in found]) - 0.95) < 0.02
    assert found[0].mean == np.std(draws[0], ddof=1)


def test_the_standard_deviation_of_equal_and_of_too_few_values():
    assert standard_deviation([0.1, 0.1, 0.1]) == (0, 0, 0)
    assert standard_deviation([0.1]) == standard_deviation([]) == (None, None, None)


def drawn(config):
    """The seeds of the initial weights, of the order of the data, and of dropout."""
    own = config["seed"]
    found = (config["model"]["seed"], config["data"]["seed"], own)
    return dict(zip(SOURCES, (own if seed is None else seed for seed in found), strict=True))


def test_runs_of_a_source_differ_from_the_first_run_in_that_source():
    plan = planned(noise_floor=True)
    runs = {(run.variant.source, run.seed): run for run in plan.runs if run.variant.levels}
    first = drawn(runs["", 0].config)
    for source in SOURCES:
        assert (source, 0) not in runs  # it is the run of the baseline
        for seed in (1, 2):
            assert drawn(runs[source, seed].config) == first | {source: seed}
            line = preflight([*TINY, *runs[source, seed].words])
            assert drawn(line.configs[0]) == first | {source: seed}
    assert len(plan.runs) == len({run.key for run in plan.runs}) == 2 * 3 + 3 * 2
    assert [run["variant"] for run in plan.plain()["runs"]][:5] == [0, 1, 0, 1, 2]


def test_one_source_can_be_chosen():
    plan = planned(noise_floor=["order"])
    assert [v.title for v in plan.variants[2:]] == ["baseline, only order of the data"]


def results():
    """Runs of two variants at four seeds, of the baseline 0, 1, 2, 3 apart; with only the order
    varied half of that, and with only dropout nothing.
    """
    known = [variant(), changed("placement", "post")]
    outcomes = [finished(i, s, 2 + 0.1 * s + 0.01 * i * (s % 2)) for i in (0, 1) for s in range(4)]
    for i, (source, size) in enumerate((("order", 0.05), ("dropout", 0.0)), 2):
        known.append(variant(f"noise of {source}") | {"source": source})
        outcomes += [finished(i, s, 2 + size * s) for s in range(1, 4)]
    return study(known, outcomes)


def test_the_report_compares_no_run_of_the_noise_floor():
    found = content(results())
    assert [one.label for one in found.variants] == ["baseline", "placement=post"]
    assert (found.baseline.runs.total, found.variants[1].verdict.difference.count) == (4, 4)
    every, order, dropout = (one.sd.mean for one in found.noise)
    assert every == pytest.approx(0.1 * np.std(range(4), ddof=1))
    assert order == pytest.approx(every / 2) and dropout == 0
    assert {one.runs for one in found.noise} == {4}
    page = markdown(report_of(results()))
    assert "| order of the data | 0.06 | 0.04 to 0.24 |" in page and "| dropout | 0 | - |" in page
    assert "is 0.13 nats (95 % CI 0.07 to 0.48). With only one source varied: 0.06 by order" in page


@pytest.mark.parametrize(
    ("words", "node", "fault"),
    [
        ([], {"seeds": 1}, "study.noise_floor: needs two seeds or more"),
        ([], {"tune": {"optim.lr": [1e-3, 1e-2]}}, "study.noise_floor: is of one baseline"),
        (["data.seed=3"], {}, "data.seed: is varied by study.noise_floor, so it must be null"),
        ([], {"noise_floor": ["init"]}, "study.noise_floor"),
        ([], {"noise_floor": []}, "study.noise_floor: must be true, or a list of different"),
        ([], {"noise_floor": ["order", "order"]}, "study.noise_floor: must be true, or a list"),
    ],
)
def test_a_noise_floor_that_cannot_be_run_is_refused(words, node, fault):
    with pytest.raises(ConfigError) as error:
        planned(*words, **{"noise_floor": True} | node)
    assert messages(error.value.faults)[0].startswith(fault)
