"""Main effects and interactions: by hand, against statsmodels, and with runs missing."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from statsmodels.formula.api import ols
from statsmodels.stats.anova import AnovaRM

from xformer_kit.study.factorial import Cell, factorial_effects

A, B, THREE = ("a0", "a1"), ("b0", "b1"), ("c0", "c1", "c2")
BASE = {"a": "a0", "b": "b0", "c": "c0"}


def runs(value, seeds=4, levels=(A, B, THREE), base=BASE):
    """Every combination at every seed; value(levels, seed)."""
    combinations = [dict(zip(base, chosen, strict=True)) for chosen in product(*levels)]
    return [
        Cell(chosen, seed, value(chosen, seed)) for chosen in combinations for seed in range(seeds)
    ]


def named(cells, base=BASE):
    return {effect.name: effect for effect in factorial_effects(cells, base)}


def noisy(seed=0):
    rng = np.random.default_rng(seed)
    return lambda levels, seed: 10 * seed + rng.normal()


def additive(levels, seed):
    """Without interactions and noise; the seed moves all runs alike."""
    return (
        100 * seed
        + {"a0": 0, "a1": 5}[levels["a"]]
        + {"b0": 0, "b1": 0}[levels["b"]]
        + 7 * int(levels["c"][1])
    )


def test_a_table_by_hand():
    """y = 10 + 2 a + 3 b + 4 a b: the effect of a is 2 where b is off and 6 where it is on."""
    base = {"a": "a0", "b": "b0"}
    value = {("a0", "b0"): 10, ("a1", "b0"): 12, ("a0", "b1"): 13, ("a1", "b1"): 19}
    cells = runs(lambda at, seed: value[at["a"], at["b"]] + seed, levels=(A, B), base=base)
    found = named(cells, base)
    means = {name: effect.difference.mean for name, effect in found.items()}
    assert means == {"a=a1": 4, "b=b1": 5, "a=a1 with b=b1": 4}
    assert all(
        effect.method == "matched" and effect.used == effect.combinations
        for effect in found.values()
    )
    assert (found["a=a1"].used, found["a=a1 with b=b1"].used, found["a=a1"].difference.count) == (
        2,
        1,
        4,
    )


def test_effects_cover_all_levels_and_pairs_of_levels():
    pairs = {"a=a1 with b=b1"} | {f"{x} with c=c{i}" for x in ("a=a1", "b=b1") for i in (1, 2)}
    assert named(runs(noisy())).keys() == {"a=a1", "b=b1", "c=c1", "c=c2"} | pairs


def test_effects_are_those_of_a_repeated_measures_anova():
    """With two levels each, the F of a factor within seeds is the square of our t."""
    base = {"a": "a0", "b": "b0"}
    cells = runs(noisy(1), seeds=6, levels=(A, B), base=base)
    frame = pd.DataFrame([{**cell.levels, "seed": cell.seed, "y": cell.value} for cell in cells])
    table = AnovaRM(frame, "y", "seed", within=["a", "b"]).fit().anova_table
    found = named(cells, base)
    for ours, theirs in (("a=a1", "a"), ("b=b1", "b"), ("a=a1 with b=b1", "a:b")):
        assert found[ours].difference.p == pytest.approx(table.loc[theirs, "Pr > F"])


def test_a_common_shift_of_a_seed_changes_no_effect():
    quiet = named(runs(noisy(2)))
    loud = named([cell._replace(value=cell.value + 1000 * cell.seed) for cell in runs(noisy(2))])
    for name, effect in quiet.items():
        assert effect.difference.mean == pytest.approx(loud[name].difference.mean, abs=1e-9)
        assert effect.difference.p == pytest.approx(loud[name].difference.p, rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_missing_runs_do_not_bias_effects(seed):
    """b does nothing. Levels of b that lost other combinations, or other seeds, would look
    different if those were compared.
    """
    rng = np.random.default_rng(seed)
    cells = runs(additive, seeds=5)
    kept = [cell for cell in cells if rng.uniform() > 0.3]
    found = named(kept)
    assert {"b=b1", "c=c2"} <= found.keys()
    for name, wanted in (
        ("a=a1", 5),
        ("b=b1", 0),
        ("c=c1", 7),
        ("c=c2", 14),
        ("a=a1 with b=b1", 0),
    ):
        if found[name].method != "not crossed":
            assert found[name].difference.mean == pytest.approx(wanted, abs=1e-9), name


def test_a_missing_combination_is_left_out_of_both_levels():
    """All runs of a1 with b1 and c2 diverged: a is compared at the five other combinations, c2 with
    c0 at three.
    """
    gone = {"a": "a1", "b": "b1", "c": "c2"}
    found = named([cell for cell in runs(noisy()) if cell.levels != gone])
    assert (found["a=a1"].used, found["a=a1"].combinations) == (5, 6)
    assert (found["c=c2"].used, found["c=c2"].combinations) == (3, 4)
    assert (found["c=c1"].used, found["a=a1 with b=b1"].used) == (4, 2)
    assert found["a=a1"].difference.count == 4


def test_one_missing_run_removes_its_seed():
    """One of 4 seeds holds less than one of 3 combinations or fewer, but more than one of 6."""
    gone = ({"a": "a1", "b": "b1", "c": "c2"}, 3)
    found = named([cell for cell in runs(noisy()) if (cell.levels, cell.seed) != gone])
    assert (found["a=a1 with b=b1"].used, found["a=a1 with b=b1"].difference.count) == (3, 3)
    assert (found["a=a1"].used, found["a=a1"].difference.count, found["a=a1"].seeds) == (5, 4, 4)


def test_a_fraction_is_fitted_without_interactions():
    """Half of 2 x 2 x 2: no two runs differ in exactly one factor. The reference is the least
    squares of statsmodels, with seeds as blocks.
    """
    value = noisy(3)
    cells = [
        c
        for c in runs(value, levels=(A, B, THREE[:2]))
        if sum(x[1] == "1" for x in c.levels.values()) % 2 == 0
    ]
    found = named(cells)
    frame = pd.DataFrame([{**cell.levels, "seed": cell.seed, "y": cell.value} for cell in cells])
    wanted = ols("y ~ C(a) + C(b) + C(c) + C(seed)", frame).fit().params
    for name in ("a", "b", "c"):
        effect = found[f"{name}={name}1"]
        assert effect.difference.mean == pytest.approx(wanted[f"C({name})[T.{name}1]"])
        assert (effect.method, effect.used, effect.difference.count) == ("additive", 4, 4)
    assert (
        found["a=a1 with b=b1"].method == "not crossed"
        and found["a=a1 with b=b1"].difference.mean is None
    )


def test_unidentified_effects_are_not_estimated():
    """a1 and b1 only ever come together: neither has an effect of its own."""
    cells = [c for c in runs(noisy()) if (c.levels["a"] == "a1") == (c.levels["b"] == "b1")]
    found = named(cells)
    assert found["a=a1"].method == found["b=b1"].method == "not crossed"
    assert found["c=c1"].method == "matched"


def test_one_at_a_time_compares_at_the_baseline():
    cells = [c for c in runs(noisy()) if sum(c.levels[f] != x for f, x in BASE.items()) <= 1]
    found = named(cells)
    assert {
        name: (e.method, e.used) for name, e in found.items() if len(e.factors) == 1
    } == dict.fromkeys(("a=a1", "b=b1", "c=c1", "c=c2"), ("matched", 1))
    assert {e.method for e in found.values() if len(e.factors) == 2} == {"not crossed"}


def test_no_run_has_no_effect():
    assert factorial_effects([], {"a": "a0"}) == []
