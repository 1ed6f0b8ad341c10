"""Blocks that predict tokens after the next one, in training."""

from xformer_kit.extra.base import EXTRAS, Extra, Prediction
from xformer_kit.registry import Fault, above, at_least, at_most

MAX_BLOCKS = 10_000  # blocks


@EXTRAS.register("future_tokens", also_called=("multi_token_prediction",), similar=("mtp",))
class FutureTokens(Extra):
    """`count` tokens are predicted in training: the next one by the last block, and each later one
    by a block of its own that reads what the last block reads (Gloeckle et al., 2024,
    arXiv:2404.19737, section 2, eq. 2). Block `2` is for the token after the next one. The loss of
    each later token is multiplied by `weight`, which is 1 in the paper.
    """

    variants = [{"count": 3}]

    def __init__(
        self,
        layers: int,
        *,
        count: int = 4,  # tokens predicted at each place in training, the next one included
        weight: float = 1.0,  # of the loss of each token after the next one
    ):
        super().__init__()
        self.last = layers - 1
        later = range(2, count + 1)
        self.predictions = [Prediction(f"future_loss_{n}", n, weight) for n in later]

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, "tokens", count=2)
        yield from at_most(options, "tokens", count=MAX_BLOCKS)
        yield from above(options, weight=0)

    @classmethod
    def cannot(cls, options, context):
        seq_len = context.stacks[-1].base.sublayers[0].context.seq_len
        if seq_len is not None and options.count > seq_len:
            yield Fault(
                "count",
                "must be at most data.seq_len, or the last has no target",
                got=f"{options.count} and {seq_len}",
            )

    def add_blocks(self, block):
        for prediction in self.predictions:
            self.add_module(str(prediction.ahead), block(self.last))

    def multi_token_states(self, state, last, layer):
        return {name: block(state, last)[:2] for name, block in self.named_children()}
