"""Weights of one model that start another."""

import pytest
import torch
from torch import nn

from xformer_kit import build, compose
from xformer_kit.model.transfer import plan_transfer, rows_of_tokens
from xformer_kit.text.tensor_lists import listed


def model(layers: int, width: int = 2) -> nn.Module:
    blocks = nn.ModuleList(nn.ModuleDict({"a": nn.Linear(2, width)}) for _ in range(layers))
    return nn.ModuleDict({"embed": nn.Embedding(3, 2), "decoder": blocks})


def test_rows_are_those_of_the_same_token():
    assert rows_of_tokens([b"a", b"b", "mask"], [b"a", b"c", b"b", "mask"]) == [
        (0, 0),
        (1, 2),
        (2, 3),
    ]
    assert rows_of_tokens([b"a", b"", b""], [b"", b"", b""]) == [(1, 1), (2, 2)]
    assert rows_of_tokens([b""], [b"a", b"", b""]) == [(0, 1)]


def test_a_model_equal_to_the_state_is_copied_completely():
    own, other = model(2), model(2).state_dict()
    transfer = plan_transfer(own, other, {})
    assert not transfer.faults and transfer.copied.keys() == other.keys()
    own.load_state_dict(transfer.copied)
    assert all(
        torch.equal(a, b) for a, b in zip(own.state_dict().values(), other.values(), strict=True)
    )


def test_rows_of_shared_tokens_are_copied_and_the_others_kept():
    own, other = model(1), {**model(1).state_dict(), "embed.weight": torch.arange(8.0).view(4, 2)}
    start = own["embed"].weight.detach().clone()
    embed = plan_transfer(own, other, {"embed.weight": [(0, 3), (2, 1)]}).copied["embed.weight"]
    assert embed.tolist() == [[6, 7], start[1].tolist(), [2, 3]]


def test_all_that_does_not_fit_is_in_one_message_whose_fix_allows_it():
    own, other = model(4), {**model(2, width=3).state_dict(), "head.weight": torch.ones(1)}
    (fault,) = plan_transfer(own, other, {}).faults
    text = str(fault)
    assert (
        "missing there: decoder.2.* (2), decoder.3.* (2); not used here: head.*; of another" in text
    )
    assert "decoder.*.a.weight (2) (2, 2) here, (3, 2) there, decoder.*.a.bias (2)" in text
    allow = text.rpartition("allow=[")[2].partition("]")[0].split(",")
    transfer = plan_transfer(own, other, {}, allow)
    assert not transfer.faults and transfer.copied.keys() == {"embed.weight"}
    assert transfer.unused == ["head.weight"] and len(transfer.missing) == 4


def test_a_state_of_which_nothing_fits_is_refused_with_an_example_also_if_all_is_allowed():
    other = {name: torch.ones(5, 5) for name in model(1).state_dict()}
    for allow in ((), ("*",)):
        (fault,) = plan_transfer(model(1), other, {}, allow).faults
        assert fault.rule == (
            "has no tensor that fits this model, such as embed.weight: (3, 2) here, (5, 5) there"
        )
    (fault,) = plan_transfer(model(1), {"other": torch.ones(1)}, {}).faults
    assert fault.rule == "has no tensor that fits this model"


def test_a_pattern_that_matches_nothing_is_refused_with_the_nearest_names():
    (fault,) = plan_transfer(model(1), model(1).state_dict(), {}, ["decoder.0.a.wieght"]).faults
    assert fault.path == "init_from.allow" and "decoder.0.a.weight" in fault.fix


def test_all_that_does_not_fit_is_listed_if_anything_may_differ():
    own, other = model(4), {**model(2, width=3).state_dict(), "head.weight": torch.ones(1)}
    transfer = plan_transfer(own, other, {}, None)
    assert not transfer.faults and transfer.copied.keys() == {"embed.weight"}
    assert listed(transfer.missing, [*own.state_dict(), *other]) == (
        "decoder.2.* (2), decoder.3.* (2)"
    )
    assert transfer.unused == ["head.weight"] and len(transfer.reshaped) == 4


@pytest.mark.parametrize(("before", "now"), [(4, 2), (4, 1), (2, 4), (6, 3)])
def test_key_heads_are_averaged_or_repeated(before, now):
    words = ["attn.heads=12", "model.dim=24", "model.layers=1"]
    one, two = (
        build(compose([*words, f"attn.kv_heads={n}"], data=False), 5) for n in (before, now)
    )
    transfer = plan_transfer(two, one.state_dict(), {}, None)
    assert transfer.resized.keys() == {f"decoder.0.attn.{name}.weight" for name in "kv"}
    (fault,) = plan_transfer(two, one.state_dict(), {}, []).faults
    assert "of another shape: decoder.0.attn.k.weight (" in fault.rule
    assert not plan_transfer(two, one.state_dict(), {}, ["decoder.*.attn"]).faults
    heads = one.decoder[0].attn.k.weight.view(before, 2, 24)
    got = transfer.copied["decoder.0.attn.k.weight"].view(now, 2, 24)
    for at in range(now):
        of = range(before)[
            at * before // now : max((at + 1) * before // now, at * before // now + 1)
        ]
        torch.testing.assert_close(got[at], heads[list(of)].mean(0))


def test_repeated_key_heads_compute_the_same():
    words = ["attn.heads=4", "model.dim=16", "model.layers=2"]
    one, two = (build(compose([*words, f"attn.kv_heads={n}"], data=False), 9) for n in (1, 4))
    two.load_state_dict(plan_transfer(two, one.state_dict(), {}, None).copied)
    ids = torch.arange(8)[None]
    torch.testing.assert_close(two(ids), one(ids))


def test_positions_are_cut_or_continue_with_initial_values():
    def learned(length):
        words = ["position=learned", f"model.max_len={length}", f"data.seq_len={length}"]
        return build(compose([*words, "model.layers=1"], data=False), 5)

    name = "decoder.position.base.weight"
    short, long = learned(8), learned(12)
    initial = long.state_dict()[name][8:].clone()
    longer = plan_transfer(long, short.state_dict(), {}, None).copied[name]
    assert torch.equal(longer[:8], short.state_dict()[name]) and torch.equal(longer[8:], initial)
    shorter = plan_transfer(short, long.state_dict(), {}, None).copied[name]
    assert torch.equal(shorter, long.state_dict()[name][:8])
