"""Buckets of distances, as in T5; tests/hub compares whole models of T5."""

from tests.messages import messages
from xformer_kit.laws import faults, tiny_config


def test_farther_distances_than_have_buckets_of_their_own_are_needed():
    assert messages(faults(tiny_config(position={"name": "t5", "buckets": 8, "longest": 5}))) == []
    assert messages(faults(tiny_config(position={"name": "t5", "buckets": 8, "longest": 4}))) == [
        "position.longest: must be above 4; got 4. That is half the buckets."
    ]
