"""Placement normformer: a norm after attention."""

from placements import F, G, X, group, random_placement
from torch.testing import assert_close

from xformer_kit.tensors.tokens import UNKNOWN


def test_normformer_has_a_norm_behind_attention_alone():
    attention, network, both = (
        random_placement("normformer", kinds) for kinds in (["attn"], ["ffn"], ["attn", "ffn"])
    )
    assert_close(
        attention((X,), group(F), UNKNOWN)[0], X + attention.after[0](F(attention.before[0](X)))
    )
    assert_close(network((X,), group(F), UNKNOWN)[0], X + F(network.before[0](X)))
    h = both.before[0](X)
    assert_close(both((X,), group(F, G), UNKNOWN)[0], X + both.after[0](F(h)) + G(h))
    scaled = random_placement("normformer", ["ffn"], scale_residual=True)
    assert_close(
        scaled((X,), group(F), UNKNOWN)[0], scaled.stream.weight * X + F(scaled.before[0](X))
    )
    assert not hasattr(
        random_placement("normformer", ["attn"], scale_residual=True).stream, "weight"
    )  # layers with only a feed-forward network
