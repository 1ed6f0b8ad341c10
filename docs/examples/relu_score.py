"""A score function: python train.py components=[docs/examples/relu_score.py] attn.score=relu"""

from xformer_kit.attention import SCORES, Score, count_keys


@SCORES.register("relu")
class ReLUScore(Score):
    """relu(s_j) / n, with n the number of keys that the query attends to (Wortsman et al., 2023,
    arXiv:2309.08586, section 3).
    """

    def weights(self, scores):
        return scores.relu() / count_keys(scores)
