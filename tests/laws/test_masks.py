"""Each law of xformer_kit/laws/masks.py is broken by a faulty mask."""

from dataclasses import dataclass

from breaking import OneAhead, broken_component_test, laws_in

from xformer_kit.mask import MASKS, Causal, Mask


@dataclass(frozen=True)
class WrongBand(Causal):
    def band(self):
        return 3, 0


@dataclass(frozen=True)
class HeadsDiffer(Mask):
    def allows(self, query, key, head):
        return key.slot <= query.slot - head % 2

    @property
    def sees_future(self):
        return False


@dataclass(frozen=True)
class CountsFromStart(Causal):
    def allows(self, query, key, head):
        return (key.slot <= query.slot) & (key.position % 3 == 0)

    def band(self):
        return None

    @property
    def sees_future(self):
        return False


@dataclass(frozen=True)
class CountsQueries(Mask):
    """Depends on the number of queries: not point-wise."""

    def allows(self, query, key, head):
        return key.slot <= query.slot.float().mean()


class ComparedByIdentity(Mask):
    """Is compared by identity, not by value."""

    def allows(self, query, key, head):
        return key.slot <= query.slot

    def band(self):
        return float("inf"), 0


ARGUMENTS = [
    (
        "mask",
        MASKS,
        OneAhead,
        "sees the future although its `sees_future` is false",
        {"mask": "broken"},
    ),
    ("mask", MASKS, WrongBand, "is not the band", {"mask": "broken"}),
    (
        "mask",
        MASKS,
        HeadsDiffer,
        "differs between heads although its `per_head` is false",
        {"mask": "broken"},
    ),
    ("mask", MASKS, CountsFromStart, "counts from the start", {"mask": "broken"}),
    ("mask", MASKS, CountsQueries, "is not point-wise", {"mask": "broken"}),
    ("mask", MASKS, ComparedByIdentity, "is no value", {"mask": "broken"}),
]


test_a_broken_component_is_caught = broken_component_test(ARGUMENTS)


def test_every_law_catches_a_broken_component():
    assert laws_in("masks") == {law for law, *_ in ARGUMENTS}
