"""What a mask says of itself: each law of xformer_kit/laws/masks.py bites."""

from dataclasses import dataclass

from breaking import OneAhead, bites, each, laws_of

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
    """Depends on how many queries there are: not point-wise."""

    def allows(self, query, key, head):
        return key.slot <= query.slot.float().mean()


class Identified(Mask):
    """Compared by identity: no value."""

    def allows(self, query, key, head):
        return key.slot <= query.slot

    def band(self):
        return float("inf"), 0


ARGUMENTS = [
    ("mask", MASKS, OneAhead, "sees the future and says that it does not", {"mask": "broken"}),
    ("mask", MASKS, WrongBand, "is not the band", {"mask": "broken"}),
    ("mask", MASKS, HeadsDiffer, "differs between heads", {"mask": "broken"}),
    ("mask", MASKS, CountsFromStart, "counts from the start", {"mask": "broken"}),
    ("mask", MASKS, CountsQueries, "is not point-wise", {"mask": "broken"}),
    ("mask", MASKS, Identified, "is no value", {"mask": "broken"}),
]


@each(ARGUMENTS)
def test_a_broken_component_is_caught(law, registry, component, match, composition):
    bites(law, registry, component, match, composition)


def test_every_law_is_seen_to_bite():
    assert laws_of("masks") == {law for law, *_ in ARGUMENTS}
