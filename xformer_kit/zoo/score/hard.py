"""All weight on the largest score."""

from xformer_kit.attention import SCORES, Score
from xformer_kit.zoo.score._largest import straight_through


@SCORES.register("hard", also_called=("hardmax", "one_hot"), similar=("saturated",))
class Hard(Score):
    """1 / m for each of the m largest scores of a row (m = 1 without ties), and 0 for the others
    (saturated attention: Merrill et al., 2022, arXiv:2106.16213); the gradient is that of softmax
    (a straight-through estimator: Bengio et al., 2013, arXiv:1308.3432).
    """

    def weights(self, scores):
        return straight_through(scores, scores.softmax(-1))
