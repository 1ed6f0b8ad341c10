"""Placements whose state grows with depth: the stream and earlier outputs."""

from xformer_kit.placement import Placement


class GrowingPlacement(Placement):
    """Base of placements whose state grows: the stream x, then v_0, v_1, ..., where v_0 is the
    input of the stack.

    stream_content: a word for what the v are.
    """

    compiled_parts = ("norm", "mixture")
    stream_content: str

    @classmethod
    def streams(cls, options):
        return cls.stream_content

    @staticmethod
    def start(x, streams):
        return x, x.clone()

    @staticmethod
    def combine_streams(state, earlier, join):
        """A skip connection changes only the stream, not the earlier outputs."""
        return join(state[0], earlier[0]), *state[1:]
