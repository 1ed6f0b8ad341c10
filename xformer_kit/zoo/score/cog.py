"""Softmax of the absolute values of scores, with their signs."""

from xformer_kit.attention import SCORES, Score


@SCORES.register("cog", also_called=("cog_attention",), similar=("signed",))
class Cog(Score):
    """sign(s_j) softmax(|s|)_j: weights may be negative (Cog attention: Lv et al., 2024,
    arXiv:2411.07176). The weight depends on the absolute value of a score, so a bias far below 0,
    as of distant keys with alibi, does not hide a key.
    """

    @classmethod
    def signed(cls, options):
        return True

    def weights(self, scores):
        hidden = scores == -float("inf")
        scores = scores.masked_fill(hidden, 0)
        return scores.sign() * scores.abs().masked_fill(hidden, -float("inf")).softmax(-1)
