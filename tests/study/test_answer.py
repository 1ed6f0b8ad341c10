"""The headline and the sentences of a study; every number in them follows from the differences."""

from math import ceil
from statistics import stdev

import pytest
from statsmodels.stats.power import TTestPower

from xformer_kit.study.answer import Runs, answer, effect_sentences
from xformer_kit.study.factorial import Cell, factorial_effects
from xformer_kit.study.metric import metric
from xformer_kit.study.power import minimum_detectable_effect
from xformer_kit.study.statistics import paired_difference

LOSS = metric("val/loss")
SEEDS = range(5)
BASE = Runs("placement=pre", {seed: 2.0 + 0.001 * seed for seed in SEEDS})


def moved(name, *differences, **runs):
    """A variant with these differences from BASE."""
    return Runs(name, {seed: BASE.values[seed] + d for seed, d in enumerate(differences)}, **runs)


# Mean 0.03, sd 0.00158: t = 42.4. Mean 0.002, sd 0.00158: t = 2.83, p = 0.047, in a family of two
# 0.09.
WORSE = moved("placement=post", 0.028, 0.029, 0.03, 0.031, 0.032)
BARELY = moved("norm=dyt", 0.0, 0.001, 0.002, 0.003, 0.004)
NOISY = moved("norm=rms", -0.02, 0.02, 0.01, -0.01, 0.005)


def sentence(variant, measured=LOSS, **options):
    return answer(BASE, [variant], measured, **options).verdicts[0].sentence


def test_a_variant_that_is_worse():
    assert (
        sentence(WORSE)
        == "placement=post is worse than placement=pre by 0.0300 nats (95 % CI 0.0280 to"
        " 0.0320, 5 seeds, p < 0.0001)."
    )


def test_the_metric_determines_the_direction():
    assert (
        sentence(WORSE, metric("val/accuracy"))
        == "placement=post is better than placement=pre by 3.00 points (95 % CI 2.80 to 3.20,"
        " 5 seeds, p < 0.0001)."
    )
    better = moved("placement=post", -0.028, -0.029, -0.03, -0.031, -0.032)
    assert sentence(better).startswith(
        "placement=post is better than placement=pre by 0.0300 nats (95 % CI 0.0280 to 0.0320,"
    )


def test_a_significant_difference_below_the_noise_of_one_run():
    """The difference is 0.03; runs of the baseline have a standard deviation of 0.047 or 0.016."""
    found = {}
    for step in (0.03, 0.01):
        base = {seed: 2.0 + step * seed for seed in SEEDS}
        worse = {seed: base[seed] + WORSE.values[seed] - BASE.values[seed] for seed in SEEDS}
        verdict = answer(Runs("pre", base), [Runs("post", worse)], LOSS).verdicts[0]
        found[step] = verdict.sentence
    noise = "This is smaller than the noise of one run (standard deviation 0.05 nats)."
    assert found[0.03].endswith(noise) and "noise" not in found[0.01]


def test_not_significant_with_its_power():
    """sd 0.01597; the minimum detectable effect of 5 seeds at 80 % power is 1.682 sd = 0.02686;
    half of 0.027 is 0.845 sd.
    """
    sd = stdev([-0.02, 0.02, 0.01, -0.01, 0.005])
    half, fifth = (
        ceil(TTestPower().solve_power(d / sd, power=0.8, alpha=0.05)) for d in (0.0135, 0.005)
    )
    assert (
        sentence(NOISY)
        == "The difference between norm=rms and placement=pre is not significant (0.001 nats, 95 %"
        " CI -0.019 to 0.021, 5 seeds, p = 0.9); minimum detectable effect 0.027 nats;"
        f" {half} seeds would detect 0.0135 nats."
    )
    assert f"; {fifth} seeds would detect 0.005 nats." in sentence(NOISY, margin=0.005)
    assert sentence(NOISY, margin=0.03).endswith(
        "minimum detectable effect 0.027 nats."
    ) or "equivalent" in sentence(NOISY, margin=0.03)


def test_holm_correction_of_a_family():
    single = answer(BASE, [BARELY], LOSS).verdicts[0]
    among = answer(BASE, [BARELY, NOISY], LOSS).verdicts[0]
    assert (single.outcome, among.outcome) == ("worse", "not significant")
    assert (
        among.p == pytest.approx(2 * single.p)
        and "Holm-corrected p = " in among.sentence
        and "Holm" not in single.sentence
    )
    assert (
        answer(BASE, [BARELY, moved("gone")], LOSS).verdicts[0].outcome == "worse"
    )  # no p, no family


def test_minimum_detectable_effect_is_at_the_corrected_level():
    one, two = (answer(BASE, [NOISY] * n, LOSS).verdicts[0] for n in (1, 2))
    for verdict, alpha in ((one, 0.05), (two, 0.025)):
        seen = LOSS.round_up(minimum_detectable_effect(verdict.difference.sd, 5, alpha=alpha))
        assert f"minimum detectable effect {seen:.3g} nats" in verdict.sentence
    assert one.sentence != two.sentence


def test_equivalence_needs_a_margin():
    within = answer(BASE, [NOISY], LOSS, margin=0.05).verdicts[0]
    assert within.outcome == "equivalent" and within.p_margin < 0.05
    assert (
        within.sentence
        == "norm=rms and placement=pre are equivalent within the margin of 0.05 nats (difference"
        " 0.001 nats, 95 % CI -0.019 to 0.021, 5 seeds; equivalence test, p = 0.0012)."
    )
    assert answer(BASE, [NOISY], LOSS, margin=0.01).verdicts[0].outcome == "not significant"
    both = sentence(BARELY, margin=0.01)
    assert both.startswith("norm=dyt is worse than") and both.endswith(
        "), but within the margin of 0.01 nats."
    )


def test_at_most_one_common_seed():
    assert (
        sentence(moved("x", 0.5))
        == "The difference between x and placement=pre is +0.5 nats at the only common seed; no"
        " test is possible: run at least 5 seeds."
    )
    assert (
        sentence(Runs("x", {}))
        == "x and placement=pre have no finished seed in common: they are not compared."
    )


def test_differences_without_variance():
    assert (
        sentence(Runs("x", BASE.values))
        == "x and placement=pre have identical values at all 5 seeds."
    )
    assert (
        sentence(Runs("x", {s: v + 0.5 for s, v in BASE.values.items()}))
        == "x is worse than placement=pre by 0.5 nats at each of 5 seeds (sign test, p ="
        " 0.062: not significant, too few seeds)."
    )


def test_diverged_runs_are_reported():
    """Three of five against none of five: 2 * C(5, 3) C(5, 0) / C(10, 3) = 1 / 6."""
    some = Runs("x", {0: 2.0, 1: 2.4}, diverged={3: 1200, 2: 90, 4: 7})
    assert sentence(some).endswith(
        " 3 of 5 runs of x diverged (seed 2 at step 90, seed 3 at step 1,200, seed 4 at step 7);"
        " 0 of 5 runs of placement=pre diverged (Fisher's exact test, p = 0.17)."
    )
    none = answer(BASE, [Runs("x", {}, diverged=dict.fromkeys(SEEDS, 10))], LOSS)
    assert none.verdicts[0].outcome == "diverged"
    assert (
        none.verdicts[0].sentence.startswith("5 of 5 runs of x diverged (")
        and "p = 0.0079" in none.sentence + none.verdicts[0].sentence
    )
    assert none.sentence == "Compared with placement=pre, x: 5 of 5 runs diverged."


def test_an_unfinished_study_is_partial():
    found = answer(BASE, [Runs("x", {0: 2.1, 1: 2.35}, unfinished=(2, 4), failed=(3,))], LOSS)
    assert found.sentence.endswith("; partial: 3 of 10 runs have not finished.")
    assert found.verdicts[0].sentence.endswith(
        " 1 of 5 runs failed (seed 3): this result is partial. 2 of 5 runs not finished (seeds 2,"
        " 4): this result is partial."
    )


def test_a_verdict_has_the_difference_of_its_sentence():
    verdict = answer(BASE, [WORSE], LOSS).verdicts[0]
    assert (
        verdict.difference == paired_difference(BASE.values, WORSE.values)
        and verdict.p == verdict.difference.p
    )


def test_effects_of_a_design_are_one_family():
    """The effect of a has p = 0.047, and is not significant in a family of three. Its interval,
    which is not corrected, excludes 0: the sentence has both p-values.
    """
    shift = [0.0, 0.001, 0.002, 0.003, 0.004]
    cells = [
        Cell(
            {"a": a, "b": b},
            seed,
            2 + seed + shift[seed] * (a == "a1") + 0.01 * (-1) ** seed * (b == "b1"),
        )
        for a in ("a0", "a1")
        for b in ("b0", "b1")
        for seed in SEEDS
    ]
    found = factorial_effects(cells, {"a": "a0", "b": "b0"})
    assert found[0].difference.p == pytest.approx(0.047, abs=1e-3)
    assert effect_sentences(found, LOSS)[0].startswith(
        "The difference between a=a1 and a=a0 is not significant after correction for 3"
        " comparisons (0.0020 nats, 95 % CI 0.0000 to 0.0040, 5 seeds, p = 0.047, Holm-corrected"
        " p = 0.14); minimum"
    )
    assert effect_sentences(found[:1], LOSS)[0].startswith("a=a1 is worse than a=a0 by ")


def test_effects_in_sentences():
    noise = [
        [0.001, -0.002, 0.001, 0.0],
        [0.002, 0.0, -0.001, 0.001],
        [0.0, 0.001, 0.001, -0.001],
        [-0.001, 0.001, 0.0, 0.002],
    ]
    size = {("pre", "ln"): 0.0, ("post", "ln"): 0.1, ("pre", "rms"): 0.0, ("post", "rms"): 0.3}
    cells = [
        Cell({"placement": p, "norm": n}, seed, 2 + value + seed + noise[i][seed])
        for i, ((p, n), value) in enumerate(size.items())
        for seed in range(4)
    ]
    found = effect_sentences(factorial_effects(cells, {"placement": "pre", "norm": "ln"}), LOSS)
    assert (
        found[0].startswith("placement=post is worse than placement=pre by 0.20")
        and "Holm-corrected p" in found[0]
    )
    assert found[0].endswith(" Averaged over 2 of 2 combinations of the other factors.")
    assert found[2].startswith(
        "placement=post and norm=rms together are worse than the sum of their separate effects by"
        " 0.1998 nats"
    )
    lost = effect_sentences(factorial_effects(cells[:-1], {"placement": "pre", "norm": "ln"}), LOSS)
    assert lost[0].endswith(
        " combinations of the other factors; 1 of 4 seeds excluded because runs are missing."
    )
    flat = [cell._replace(value=cell.seed + noise[i // 4][i % 4]) for i, cell in enumerate(cells)]
    unseen = effect_sentences(factorial_effects(flat, {"placement": "pre", "norm": "ln"}), LOSS)
    assert unseen[2].startswith(
        "The interaction of placement=post with norm=rms is not significant ("
    )
    incomplete = [cell for cell in cells if cell.levels != {"placement": "post", "norm": "rms"}]
    assert (
        effect_sentences(factorial_effects(incomplete, {"placement": "pre", "norm": "ln"}), LOSS)[2]
        == "placement=post with norm=rms cannot be estimated: no combination of the other factors"
        " was run at all of its levels."
    )
