"""The results of a search that are compared: the baseline and the confirmed points at new seeds."""

from dataclasses import replace

from tests.studies import changed, finished, study, variant
from xformer_kit.study.report.search import confirmation_results


def search_results(confirmed, seeds=(0, 1, 2)):
    known = [variant(), *(changed("placement", name) for name in ("post", "output"))]
    outcomes = [finished(i, seed, 2.0 + i / 10) for seed in seeds for i in range(3)]
    points = [
        {"label": one["label"], "value": 2.0 + i / 10, "number": i} for i, one in enumerate(known)
    ]
    labels = [known[i]["label"] for i in confirmed]
    search = {"confirmed": labels, "seed": 0, "points": points}
    return replace(study(known, outcomes), search=search)


def test_confirmed_points_are_compared_with_the_baseline_at_seeds_that_the_search_did_not_use():
    found = confirmation_results(search_results([2]))
    assert [one["label"] for one in found.variants] == [
        search_results([]).variants[i]["label"] for i in (0, 2)
    ]
    assert [(one.variant, one.seed) for one in found.outcomes] == [(0, 1), (1, 1), (0, 2), (1, 2)]


def test_without_confirmation_the_best_trial_is_compared_at_the_seed_of_the_search():
    found = confirmation_results(search_results([], seeds=(0,)))
    assert [(one.variant, one.seed) for one in found.outcomes] == [(0, 0), (1, 0)]
    assert [one["name"] for one in found.variants][1:] == ["trial 1"]
