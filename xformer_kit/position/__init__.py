"""Where does a token stand? Position can enter at four places; each scheme overrides what it
needs.
"""

from xformer_kit.position.absolute import Learned, Sinusoidal
from xformer_kit.position.base import POSITIONS, Position
from xformer_kit.position.content import CoPE, Curves, Disentangled, Shaw, TransformerXL
from xformer_kit.position.dynamic import Dynamic
from xformer_kit.position.forgetting import Forgetting
from xformer_kit.position.polar import Polar
from xformer_kit.position.relative import T5, Alibi, Fire, Kerple
from xformer_kit.position.rotary import Rotary, XPos
from xformer_kit.position.scaling import SCALINGS

__all__ = [
    "POSITIONS",
    "SCALINGS",
    "T5",
    "Alibi",
    "CoPE",
    "Curves",
    "Disentangled",
    "Dynamic",
    "Fire",
    "Forgetting",
    "Kerple",
    "Learned",
    "Polar",
    "Position",
    "Rotary",
    "Shaw",
    "Sinusoidal",
    "TransformerXL",
    "XPos",
]
