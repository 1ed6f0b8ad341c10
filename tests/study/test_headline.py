"""The headline of a study: every variant once, with the sign and the size of its difference."""

import random
import re

import pytest

from xformer_kit.study.answer import Runs, answer
from xformer_kit.study.metric import metric

LOSS, ACCURACY = metric("val/loss"), metric("val/accuracy")
SEEDS = range(5)
BASE = Runs("placement=pre", {seed: 2.0 + 0.3 * seed for seed in SEEDS})
NOISE = (-0.002, -0.001, 0.0, 0.001, 0.002)  # mean 0


def moved(name, shift, noise=NOISE, **runs):
    """A variant whose mean difference from BASE is `shift` if all of its seeds have finished."""
    values = {seed: BASE.values[seed] + shift + noise[seed] for seed in range(len(noise))}
    return Runs(name, values, **runs)


def headline(*variants, measured=LOSS, base=BASE, **options):
    return answer(base, variants, measured, **options).sentence


def test_all_variants_with_sizes_the_largest_first():
    post, output = moved("placement=post", 0.3), moved("placement=output", 0.5)
    sandwich, deep = moved("placement=sandwich", -0.1), moved("placement=deep_norm", 0.0)
    assert headline(post, sandwich, output, deep) == (
        "Compared with placement=pre, sandwich is better by 0.1000 nats; worse are output (by"
        " 0.5000 nats) and post (by 0.3000 nats); deep_norm: no significant difference."
    )
    assert headline(post, sandwich, output, deep, measured=ACCURACY) == (
        "Compared with placement=pre, better are output (by 50.00 points) and post (by 30.00"
        " points); sandwich is worse by 10.00 points; deep_norm: no significant difference."
    )


def test_a_size_has_the_decimals_of_its_interval():
    """Half of the interval is 2.78 sd / sqrt(5): 0.0020 nats, then 0.20 nats."""
    wide = [100 * x for x in NOISE]
    assert headline(moved("placement=post", 0.5)).endswith(" by 0.5000 nats.")
    assert headline(moved("placement=post", 0.5, wide)).endswith(" by 0.50 nats.")


def test_variants_without_significant_differences():
    a, b = moved("placement=sandwich", 0.0), moved("placement=output", 0.0)
    assert headline(a, b) == (
        "Compared with placement=pre, sandwich and output: no significant difference."
    )
    assert headline(a, b, margin=0.01) == (
        "Compared with placement=pre, sandwich and output: equivalent within the margin of 0.01"
        " nats."
    )
    assert headline() == "There is no variant to compare with placement=pre."


def test_missing_runs_are_at_the_name_of_their_variant():
    some = moved("placement=post", 0.3, NOISE[:3], diverged={3: 10, 4: 20})
    none = Runs("placement=output", {}, diverged=dict.fromkeys(SEEDS, 10))
    gone = Runs("placement=sandwich", {}, unfinished=(0, 1), failed=(2,))
    assert headline(some, none, gone) == (
        "Compared with placement=pre, post (2 of 5 runs diverged) is worse by 0.2990 nats;"
        " sandwich: not tested; output: 5 of 5 runs diverged; partial: 3 of 18 runs have not"
        " finished."
    )
    base = Runs("placement=pre", {seed: 2.0 + 0.3 * seed for seed in range(1, 5)}, {0: 7})
    assert headline(moved("placement=post", 0.3), base=base) == (
        "Compared with placement=pre, post is worse by 0.3005 nats; pre: 1 of 5 runs diverged."
    )


def test_one_seed_has_a_size_and_no_test():
    post, output = moved("placement=post", 0.3, [0.0]), moved("placement=output", 0.5, [0.0])
    assert headline(post, output) == (
        "Compared with placement=pre, at one seed, not tested: output +0.5 nats, post +0.30 nats."
    )
    tested = moved("placement=sandwich", 0.0)
    assert headline(post, tested) == (
        "Compared with placement=pre, sandwich: no significant difference; at one seed, not tested:"
        " post +0.30 nats."
    )
    assert headline(moved("placement=post", 0.0, [0.0])) == (
        "Compared with placement=pre, post: not tested."
    )


def test_a_stopped_variant_has_no_size():
    stopped = moved("placement=post", 0.5, NOISE[:3], stopped="placement=post was stopped.")
    assert headline(stopped) == (
        "Compared with placement=pre, post: worse, stopped before the last seed."
    )


def test_the_factor_is_named_once():
    post = moved("placement=post", 0.3)
    norm, both = moved("norm=rms", 0.2), moved("placement=post, norm=rms", 0.6)
    base = Runs("baseline", BASE.values)
    assert headline(post, base=base) == (
        "Compared with baseline, placement=post is worse by 0.3000 nats."
    )
    assert headline(post, base=base, reference="placement=pre") == (
        "Compared with placement=pre, post is worse by 0.3000 nats."
    )
    assert headline(moved("placement=none", 0.3)) == (
        "Compared with placement=pre, placement=none is worse by 0.3000 nats."
    )
    assert headline(post, both, norm, base=base) == (
        "Compared with baseline, worse are 'placement=post, norm=rms' (by 0.6000 nats),"
        " placement=post (by 0.3000 nats) and norm=rms (by 0.2000 nats)."
    )


ENDINGS = (
    lambda name: moved(name, 0.3),
    lambda name: moved(name, -0.1),
    lambda name: moved(name, 0.0),
    lambda name: moved(name, 0.02, [30 * x for x in NOISE]),
    lambda name: moved(name, 0.2, NOISE[:4], diverged={4: 9}),
    lambda name: moved(name, -0.4, [0.0], unfinished=(1, 2, 3), failed=(4,)),
    lambda name: moved(name, 0.5, NOISE[:3], stopped=f"{name} was stopped."),
    lambda name: moved(name, 0.5, NOISE[:3], diverged={4: 9}, stopped=f"{name} was stopped."),
    lambda name: Runs(name, {}, diverged={0: 9}),
    lambda name: Runs(name, {}, unfinished=(0,)),
    lambda name: Runs(name, BASE.values),
)


@pytest.mark.parametrize("named", ["placement={}", "{}", "norm={}, ffn=glu", "heads={}"])
@pytest.mark.parametrize("margin", [None, 0.05])
def test_every_variant_occurs_exactly_once(named, margin):
    draw = random.Random(f"{named} {margin}")
    for _ in range(20):
        levels = draw.sample(["p", "p1", "p10", "rms_norm", "rms", "post", "a.b", "7", "70"], 7)
        names = [named.format(level) for level in levels]
        variants = [draw.choice(ENDINGS)(name) for name in names]
        found = headline(*variants, margin=margin, base=draw.choice([BASE, moved("base", 0.0)]))
        for name, level in zip(names, levels, strict=True):
            short = level if "," not in name else name
            once = rf"(?<![\w.]){re.escape(short)}(?![\w.]*[\w=])"
            text = re.sub(r"\d+(\.\d+)? nats|\d+ of \d+ runs", "", found)
            assert len(re.findall(once, text)) == 1, (name, found)


def test_the_correction_by_which_a_difference_loses_its_significance():
    """0.002 with p = 0.047 is significant, but not among three."""
    near = moved("placement=near", 0.0, (0.0, 0.001, 0.002, 0.003, 0.004))
    flat = [
        moved(f"placement={name}", 0.0, (-0.02, 0.02, 0.01, -0.01, 0.005)) for name in ("a", "b")
    ]
    assert headline(near, *flat) == (
        "Compared with placement=pre, near: no significant difference after correction for 3"
        " comparisons; a and b: no significant difference."
    )
    assert headline(near).startswith("Compared with placement=pre, near is worse by")
