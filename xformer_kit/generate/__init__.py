"""Generation: sampling, beam and contrastive search, speculative decoding, scores of texts."""

from xformer_kit.generate.beam import Beams, beam_search
from xformer_kit.generate.options import Decoding
from xformer_kit.generate.sampling import generate, stream
from xformer_kit.generate.scoring import score
from xformer_kit.generate.token_sampler import choose

__all__ = ["Beams", "Decoding", "beam_search", "choose", "generate", "score", "stream"]
