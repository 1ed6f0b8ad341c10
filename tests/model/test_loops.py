"""A stack whose layers are applied several times, in training as many times as are drawn."""

import torch
from torch.testing import assert_close

from tests.refusals import refusals
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import VOCAB, Composition
from xformer_kit.model.build import build_model


def test_loops_are_layers_that_share_blocks_in_a_cycle():
    looped, shared = (
        build_model(tiny_config(ffn={"name": "moe"}, extra={"canon": {"at": ["A"]}}, **changes), 37)
        for changes in (
            {"layers": 2, "loops": 3},
            {"layers": 6, "unique_layers": 2, "sharing": "cycle"},
        )
    )
    weights = shared.state_dict()
    assert looped.state_dict().keys() == weights.keys()
    for name, value in looped.state_dict().items():
        assert_close(value, weights[name])
    ids = torch.arange(10)[None]
    assert_close(looped(ids), shared(ids))
    assert len(looped.decoder.layers) == 6


@torch.no_grad()
def test_training_draws_the_number_of_loops():
    """Each output is that of a model with one of the numbers of loops, and all of them occur; from
    one state of the generator the number is the same.
    """
    case = Composition(tiny_config(loops=4, train_loops=[2, 4]), "")
    model, found = case.model(), set()
    of = {n: build_model(tiny_config(loops=n), VOCAB).double().eval() for n in (2, 3, 4)}
    for one in of.values():
        one.load_state_dict(model.state_dict())
    expected = {n: case.hidden(one) for n, one in of.items()}
    assert_close(case.hidden(model), expected[4])
    model.train()
    for seed in range(20):
        torch.manual_seed(seed)
        out = case.hidden(model)
        torch.manual_seed(seed)
        assert torch.equal(case.hidden(model), out)
        (n,) = (n for n, other in expected.items() if torch.allclose(out, other))
        found.add(n)
    assert found == {2, 3, 4}


@torch.no_grad()
def test_a_fixed_number_in_training_draws_nothing():
    case = Composition(tiny_config(loops=3, train_loops=2), "")
    model = case.model().train()
    two = build_model(tiny_config(loops=2), VOCAB).double()
    two.load_state_dict(model.state_dict())
    state = torch.get_rng_state()
    assert_close(case.hidden(model), case.hidden(two.eval()))
    assert torch.equal(state, torch.get_rng_state())


test_refused = refusals(
    {
        "model.loops=0": "model.loops: must be at least 1; got 0.",
        "model.train_loops=2": (
            "model.train_loops: must be from 1 to model.loops, the least before the most; got 2"
            " and 1. Set model.loops too."
        ),
        "model.loops=3 model.train_loops=[3,2]": (
            "model.train_loops: must be from 1 to model.loops, the least before the most; got"
            " [3, 2] and 3. Try [1, 3]."
        ),
    }
)
