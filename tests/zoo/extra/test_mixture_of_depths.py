"""Layers that run on some of the tokens: equal to the block on a shorter text, and cheaper."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from tests.laws_kept import every_law_test
from tests.refusals import refusals
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import LENGTH, VOCAB, Composition
from xformer_kit.model.build import build_model
from xformer_kit.tensors.tokens import Tokens


def changes_of(capacity=0.5, every=2, **changes):
    return {"extra": {"mixture_of_depths": {"capacity": capacity, "every": every}}} | changes


def of(*args, **changes):
    return Composition(tiny_config(**changes_of(*args, **changes)), "")


@pytest.mark.parametrize("training", [True, False])
def test_the_chosen_tokens_are_a_text_of_their_own(training):
    """One layer: x + r (block(x) - x) for the tokens with the highest r, or with r > 0, computed by
    a model without the extra that reads only these, at their positions.
    """
    case = of(every=1, layers=1, final_norm=False)
    model = case.model().train(training)
    plain = Composition(tiny_config(layers=1, final_norm=False), "").model()
    plain.load_state_dict(
        {name: p for name, p in model.state_dict().items() if ".extra." not in name}
    )
    router = model.decoder.extra["mixture_of_depths"].routers["0"]
    found, report = model.hidden(Tokens(ids=case.ids))
    for ids, row in zip(case.ids, found, strict=True):
        x = model.embed(ids)
        scores = router(x)[:, 0]
        chosen = scores > 0
        if training:
            chosen = scores >= scores.topk(7).values[-1]  # of 13, half, rounded up
        at = chosen.nonzero()[:, 0]
        assert 0 < len(at) < LENGTH
        block = plain.hidden(Tokens(ids=ids[at][None], position=at[None]))[0][0]
        expected = x.index_add(0, at, scores[at, None] * (block - x[at]))
        assert_close(row, expected)
    assert ("loss" in report) == training
    if training:
        assert report["decoder.extra.mixture_of_depths.chosen"] == 3 * 7
        figures = model.figures({name: x.detach() for name, x in report.items()})
        assert figures["decoder.extra.mixture_of_depths.share"] == 7 / 13


def test_the_router_learns_its_choice():
    """The loss moves the scores of the chosen above 0, and those of the others below."""
    case = of(every=1, layers=1)
    model = case.model().train()
    router = model.decoder.extra["mixture_of_depths"].routers["0"]
    _, report = model.hidden(Tokens(ids=case.ids))
    scores = router(model.embed(case.ids))[..., 0]
    rank = scores.argsort(-1, descending=True).argsort(-1)
    target = (rank < 7).to(scores.dtype)
    share = scores.sigmoid()
    expected = -(target * share.log() + (1 - target) * (1 - share).log()).mean()
    assert_close(report["loss"], 0.01 * expected)


@torch.no_grad()
def test_as_many_tokens_change_as_are_chosen():
    """0.28 * 25 is 7.000000000000001 in Python and 7 in fp32."""
    model = of(capacity=0.28, every=1, layers=1, final_norm=False).model().train()
    ids = torch.arange(25)[None]
    found, report = model.hidden(Tokens(ids=ids))
    changed = (found - model.embed(ids)).abs().amax(-1) > 0
    assert changed.sum() == report["decoder.extra.mixture_of_depths.chosen"]


@torch.no_grad()
def test_a_layer_that_no_token_enters_changes_nothing():
    """Also in the first call of generation, in which cross attentions keep the source's keys."""
    case = of(every=1, layers=1, model="encoder_decoder", position="alibi")
    model = case.model()
    model.decoder.extra["mixture_of_depths"].routers["0"].weight.zero_()
    cache = case.empty_cache(model)
    found = [case.hidden(model, ids, cache=cache) for ids in case.ids.split((4, LENGTH - 4), 1)]
    assert_close(torch.cat(found, 1), model.decoder.norm(model.embed(case.ids)))


def operations(model, length):
    with FlopCounterMode(display=False) as counter:
        model.hidden(Tokens(ids=torch.arange(length)[None] % VOCAB))[0].sum().backward()
    return counter.get_total_flops()


def test_a_layer_of_a_quarter_of_the_tokens_takes_a_quarter_of_the_operations():
    """A feed-forward layer: forward and backward of its tokens only."""
    layout = {"layers": 4, "decoder": {"layout": ["ffn"]}}
    every = of(capacity=0.25, every=1, **layout).model().train()
    router = 3 * 2 * 4 * 16 * every.dim  # of 4 layers and 16 tokens, forward and backward
    without = build_model(tiny_config(**layout), VOCAB).double().train()
    assert operations(every, 16) - router == operations(without, 16) / 4


test_every_law_is_kept = every_law_test(
    {
        "every second": changes_of(every=2),
        "every": changes_of(capacity=0.3, every=1, layers=3, position="alibi", placement="post"),
        "encoder-decoder": changes_of(model="encoder_decoder", position="t5"),
        "encoder": changes_of(model="encoder", ffn="moe", attn="latent"),
        "loops": changes_of(attn="differential", placement="hyper_connections", loops=2),
    }
)


EXTRA = "extra.mixture_of_depths"
ITS = f"{EXTRA}: its layers run on some of the tokens, and"

test_refused = refusals(
    {
        f"{EXTRA}.every=5": f"{EXTRA}.every: must be at most the layers; got 5 and 4. Try 4.",
        f"{EXTRA}.capacity=0": f"{EXTRA}.capacity: must be above 0; got 0.",
        f"{EXTRA}={{}} mask=sliding_window": (
            f"{ITS} mask 'sliding_window' measures distances among all of them. Use mask=causal or"
            " full."
        ),
        f"{EXTRA}={{}} attn=gated_delta": (
            f"{ITS} attn 'gated_delta' keeps a state of all of them. Use attn=multi_head."
        ),
        f"{EXTRA}={{}} extra.token_shift={{}}": (
            f"{ITS} extra 'token_shift' reads all of them. Leave one of them out."
        ),
        f"{EXTRA}={{}} placement=lime": (
            f"{ITS} placement 'lime' keeps what every layer adds to all of them. Choose"
            " placement=pre, or leave it out."
        ),
    }
)
