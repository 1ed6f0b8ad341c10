"""Skips to later layers, against a loop over the blocks that is written out."""

import pytest
import torch
from refusals import tiny_refusals
from torch.testing import assert_close

from tests.laws_kept import every_law_test
from xformer_kit.extra import ExtraInput
from xformer_kit.extra.join import Join
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import Composition, build_tiny_model, randomise
from xformer_kit.model.block import BlockInput
from xformer_kit.tensors.tokens import Tokens


def skips(reinject, unet):
    return {"unet": {"way": unet}, "reinject": {"way": reinject}}


def entered(x, y, weight):
    """a x + b y, or x + [x, y] W."""
    return (
        x + torch.cat([x, y], -1) @ weight.T if weight.ndim > 1 else weight[0] * x + weight[1] * y
    )


def looped(model, ids):
    """What the final norm gives for a stack of six layers, each with its joins in front."""
    stack = model.stack
    tokens, x = model._embed(Tokens(ids=ids), stack, model.embed, None, "model", None)
    contexts, state, inputs = stack.contexts(tokens, tokens, (tokens, None), x.dtype), (x,), []
    unet, reinject = (stack.extra[name].joins for name in ("unet", "reinject"))
    given = dict.fromkeys(stack.extra, ExtraInput(tokens, tokens))
    for depth, block in enumerate(stack.layers):
        inputs.append(state[0])
        (x,) = state
        if depth >= 3:
            x = entered(x, inputs[5 - depth], unet[str(depth)].weight)
        if depth >= 1:
            x = entered(x, inputs[0], reinject[str(depth)].weight)
        at = {name: contexts[group] for name, group in block.attention_group_of.items()}
        state, _, _ = block((x,), BlockInput(at, tokens, extras=given))
    return stack.norm(state[0])


@torch.no_grad()
@pytest.mark.parametrize(("reinject", "unet"), [("factor", "matrix"), ("matrix", "factor")])
def test_a_stack_with_skips_is_its_loop(reinject, unet):
    case = Composition(tiny_config(layers=6, extra=skips(reinject, unet)), "")
    model = case.model()
    assert (
        len(model.decoder.extra["reinject"].joins),
        sorted(model.decoder.extra["unet"].joins),
    ) == (
        5,
        ["3", "4", "5"],
    )
    assert_close(case.hidden(model, case.ids), looped(model, case.ids))


def test_an_odd_stack_has_a_layer_in_the_middle_that_nothing_enters():
    assert sorted(
        build_tiny_model(tiny_config(layers=5, extra={"unet": {}})).decoder.extra["unet"].joins
    ) == [
        "3",
        "4",
    ]


@torch.no_grad()
def test_each_stream_gets_what_the_same_stream_was():
    """With factors a and b, two streams that are one stay one: the output is that of a stack of one
    stream, twice.
    """
    case = Composition(
        tiny_config(layers=3, extra=skips("factor", "factor"), placement="pre", final_norm=False),
        "",
    )
    hyper = {
        **case.config,
        "placement": {"name": "hyper_connections", "streams": 2, "dynamic": False, "shared": True},
    }
    one, two = (build_tiny_model(config).double().eval() for config in (case.config, hyper))
    for model in (one, two):
        randomise(model.decoder.extra)
    assert_close(case.hidden(two, case.ids), 2 * case.hidden(one, case.ids))


def test_a_matrix_is_the_combination_of_x_transformers():
    theirs = pytest.importorskip("x_transformers.x_transformers").ConcatCombine(7, 0).double()
    x, y = (torch.randn(2, 3, 7, dtype=torch.float64) for _ in range(2))
    ours = Join(7, "matrix").double()
    with torch.no_grad():
        of_earlier, of_stream = theirs.combine.weight.chunk(2, dim=1)
        ours.weight.copy_(torch.cat([of_stream - torch.eye(7), of_earlier], 1))
    assert_close(ours(x, y), theirs(x, [y]))


@torch.no_grad()
@pytest.mark.parametrize("way", ["factor", "matrix"])
def test_a_model_with_skips_starts_as_one_without(way):
    case = Composition(tiny_config(layers=4), "")
    configs = case.config, tiny_config(layers=4, extra=skips(way, way))
    plain, joined = (build_tiny_model(config).eval() for config in configs)
    assert_close(case.hidden(joined, case.ids), case.hidden(plain, case.ids))


def test_a_factor_does_not_decay_and_a_matrix_does():
    from xformer_kit.optim import parameter_groups

    decayed, free = parameter_groups(
        build_tiny_model(tiny_config(extra=skips("matrix", "factor"))), 0.1
    )
    assert "decoder.extra.reinject.joins.1.weight" in dict(decayed["params"])
    assert "decoder.extra.unet.joins.1.weight" in dict(free["params"])


test_skips_keep_every_law = every_law_test(
    {
        "shared blocks": {
            "extra": skips("factor", "matrix"),
            "layers": 5,
            "unique_layers": 2,
            "sharing": "cycle_rev",
            "placement": "post",
        },
        "encoder-decoder": {
            "extra": skips("factor", "matrix"),
            "model": "encoder_decoder",
            "encoder": {"layers": 1},
        },
    }
)


def test_what_is_read_ahead_of_time_enters_the_blocks_of_later_tokens_too():
    case = Composition(
        tiny_config(layers=2, extra={"reinject": {}, "future_tokens": {"count": 2}}), ""
    )
    model = case.model()
    read = model.hidden(Tokens(ids=case.ids), multi_token=True)[0]
    with torch.no_grad():
        model.decoder.extra["reinject"].joins["1"].weight.mul_(3)
    moved = model.hidden(Tokens(ids=case.ids), multi_token=True)[0]
    assert all((a - b).abs().max() > 1e-3 for a, b in zip(read, moved, strict=True))


test_wrong_options_are_refused = tiny_refusals(
    [
        (
            {"layers": 1, "extra": {"reinject": {}}},
            r"extra\.reinject: needs a layer after the first. Try model\.layers=2, or leave it"
            r" out\.",
        ),
        ({"extra": {"unet": {"way": "sum"}}}, r"extra\.unet\.way: .*'sum'.* factor, matrix\."),
    ]
)


def test_description_of_a_join():
    assert [repr(Join(4, way)) for way in ("factor", "matrix")] == ["Join(factor)", "Join(matrix)"]
    assert not list(build_tiny_model(tiny_config()).decoder.extra.parameters())
