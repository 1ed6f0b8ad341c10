"""attn=exclusive: by equation, equal to x-transformers', and what is refused."""

import pytest
import torch
from refusals import refusals
from torch.testing import assert_close
from x_attention import HEAD_DIM, ours, peer

from tests.messages import messages
from xformer_kit.laws import LAWS, faults, tiny_config


@pytest.mark.parametrize(("over", "axes"), [("head", 3), ("all", (1, 3))])
@torch.no_grad()
def test_the_output_is_orthogonal_to_the_own_value(over, axes):
    own, out = torch.randn(2, 3, 5, 7).double(), torch.randn(2, 6, 5, 7).double()
    cached = torch.cat([torch.randn(2, 3, 4, 7).double(), own], 2)  # those of earlier tokens first
    mine = ours("exclusive", over=over)
    mine.kernel = lambda *given: out
    got = mine.attend(torch.zeros(2, 6, 5, HEAD_DIM), None, cached, None, None)
    every = own.repeat_interleave(2, 1)
    assert (got * every).sum(axes).abs().max() < 1e-12
    # Their layer takes one direction of a whole text, so that later tokens change earlier ones;
    # its function takes rows.
    rows = [
        t.transpose(1, 2).reshape(10, 42) if over == "all" else t.transpose(1, 2).reshape(60, 7)
        for t in (out, every)
    ]
    assert_close(got.transpose(1, 2).reshape(rows[0].shape), peer.orthog_project(*rows))


@torch.no_grad()
def test_a_token_that_sees_only_itself_gets_exactly_zero():
    v = torch.randn(2, 3, 1, 7)
    mine = ours("exclusive").float()
    mine.kernel = lambda q, k, v, *rest: v
    assert mine.attend(torch.zeros(2, 3, 1, HEAD_DIM), None, v, None, None).eq(0).all()


def test_a_decoder_with_a_source_has_another_attention_to_it():
    config = tiny_config(
        "encoder_decoder", attn="exclusive", decoder={"cross": {"name": "multi_head"}}
    )
    assert messages(faults(config)) == []
    assert LAWS["greedy"](config) is None


test_refused_configs = refusals(
    {
        "model=encoder_decoder task=seq2seq attn=exclusive": (
            "model.decoder.cross: 'exclusive' takes the direction of a token's own value away, and"
            " a token that attends to another stack has no value there. Set"
            " model.decoder.cross.name=multi_head."
        ),
        "attn=exclusive placement=output": (
            "attn: 'exclusive' returns nearly zeros for a token that sees only itself, and"
            " placement 'output' normalises the output of a sublayer. Choose placement=pre."
        ),
        "attn={name:exclusive,over:all} attn.heads=1": (
            "attn.over: with attn.heads=1 the direction of all heads is that of the one; got 'all'."
            " Set it to head."
        ),
    }
)
