"""Squares of positive scores."""

from xformer_kit.attention import SCORES, Score, count_keys


@SCORES.register("relu2", also_called=("relu_squared", "squared_relu"))
class ReLU2(Score):
    """relu(s_j)^2 / n, with n the number of keys that the query sees (Hua et al., 2022,
    arXiv:2202.10447; divided by the length as in Wortsman et al., 2023, arXiv:2309.08586, section
    3).
    """

    def weights(self, scores):
        high = scores.relu()
        return high * (high / count_keys(scores))  # the square may overflow in fp16
