"""Sweeps over glob(...): the choices of a group whose names match a pattern."""

from xformer_kit.config import GROUPS, preflight


def test_glob_is_the_sweep_over_the_choices_that_match():
    line = preflight(["-m", "logger=none", "norm=glob(*,exclude=[l*,rms])"])
    others = [name for name in sorted(GROUPS["norm"]) if name != "rms" and name[0] != "l"]
    assert "layer" in GROUPS["norm"] and "l2" in GROUPS["norm"]
    assert len(line.configs) == len(others)
    assert f"norm=choice({','.join(others)})" in line.argv
    assert (
        len(preflight(["-m", "logger=none", "experiment=glob(*n,exclude=c*)"]).configs) == 1
    )  # induction
