"""A state that grows: the stream, and all that was given before."""

from xformer_kit.placement import Placement

BREAKS = {
    "one graph": (
        "a layer reads all streams so far, one more with each group of sublayers; one number of"
        " them for all layers would be a copy of them all in each"
    )
}


class GrowingPlacement(Placement):
    """Base of those whose state grows: the stream x, and behind it v_0, v_1, ..., where v_0 is what
    entered the stack.

    told: what the v are, in words.
    """

    breaks = BREAKS
    told: str

    @classmethod
    def streams(cls, options):
        return cls.told

    @staticmethod
    def start(x, streams):
        return x, x.clone()

    @staticmethod
    def joined(state, earlier, join):
        """A skip enters the stream alone: what was given before stays what it was."""
        return join(state[0], earlier[0]), *state[1:]
