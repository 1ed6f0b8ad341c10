"""Placement reversible: section 3 of Reformer."""

from placements import F, G, X, group, random_placement
from torch.testing import assert_close

from xformer_kit.tensors.tokens import UNKNOWN

Y = X.roll(1, 0).flip(-1)


def test_two_halves_change_by_turns_and_can_be_computed_backwards():
    attention, network = (random_placement("reversible", [kind]) for kind in ("attn", "ffn"))
    nets = network.norm[0], attention.norm[0]
    network.norm[0].weight.data *= 2  # another norm than that of attention
    y1 = X + 0.5 * F(nets[1](Y))
    y2 = Y + 0.5 * G(nets[0](y1))
    got = network(attention((X, Y), group(F, factor=0.5), UNKNOWN), group(G, factor=0.5), UNKNOWN)
    assert_close(got, (y1, y2))
    x2 = y2 - 0.5 * G(nets[0](y1))
    assert_close((y1 - 0.5 * F(nets[1](x2)), x2), (X, Y))
    assert_close(network.finish(got, lambda x: 3 * x), 1.5 * (y1 + y2))


def test_parallel_sublayers_and_single_ones_take_turns_alike():
    part = random_placement("reversible", ["attn", "ffn"], shared=False)
    first, second = part.norm
    assert_close(
        part((X, Y), group(F, G, factor=0.5), UNKNOWN), (Y, X + 0.5 * (F(first(Y)) + G(second(Y))))
    )
