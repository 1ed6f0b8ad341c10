"""Where does a token stand? Position can enter at four places; each scheme overrides what it
needs.
"""

from xformer_kit.position.absolute import LearnedPosition, Sinusoidal
from xformer_kit.position.base import POSITIONS, Position, plain, spread, still
from xformer_kit.position.content import (
    Disentangled,
    Shaw,
    TransformerXL,
    apart,
    chosen,
)
from xformer_kit.position.relative import T5, Alibi, exact
from xformer_kit.position.rotary import Rotary, Turns, unpaired
from xformer_kit.position.scaling import SCALINGS

__all__ = [
    "POSITIONS",
    "SCALINGS",
    "T5",
    "Alibi",
    "Disentangled",
    "LearnedPosition",
    "Position",
    "Rotary",
    "Shaw",
    "Sinusoidal",
    "TransformerXL",
    "Turns",
    "apart",
    "chosen",
    "exact",
    "plain",
    "spread",
    "still",
    "unpaired",
]
