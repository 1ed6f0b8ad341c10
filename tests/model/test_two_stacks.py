"""Models with an encoder and a decoder: shared components, embeddings and cross attention."""

import pytest
import torch
from torch import nn

from xformer_kit import ConfigError
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import randomise
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model
from xformer_kit.norm import RMSNorm
from xformer_kit.tensors.tokens import Tokens

VOCAB = 37
SOURCE, TARGET = torch.arange(7)[None], torch.arange(10, 15)[None]


def model_of(source_vocab_size=None, **changes) -> Model:
    model = build_model(tiny_config("encoder_decoder", **changes), VOCAB, source_vocab_size)
    randomise(model)
    return model.double().eval()


def test_stacks_share_components_and_have_separate_layers():
    attn = {"name": "multi_head", "heads": 4, "kv_heads": 2, "head_dim": None}
    changes = {"encoder": {"layers": 6}, "decoder": {"layers": 2, "cross": {"heads": 2}}}
    model = model_of(attn=attn, norm="layer", dropout=0.1, **changes)
    assert (len(model.encoder.blocks), len(model.decoder.blocks)) == (6, 2)
    blocks = [*model.encoder.blocks, *model.decoder.blocks]
    assert {
        (block.attn.q.out_features, block.attn.kv_heads, block.dropout) for block in blocks
    } == {(36, 2, 0.1)}
    assert {type(stack.norm).__name__ for stack in (model.encoder, model.decoder)} == {"LayerNorm"}
    assert {block.cross.head_dim for block in model.decoder.blocks} == {18}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_may_be_shared_three_ways_two_ways_or_not(shared, tied):
    """Three matrices, (vocab, dim) each, of source, target and head: as many are left as are told
    apart.
    """
    model = model_of(share_embeddings=shared, tie_embeddings=tied)
    tables = [name for name, p in model.named_parameters() if p.shape == (40, 36)]
    assert tables == ["embed.weight"] + ["source_embed.weight"] * (not shared) + ["head.weight"] * (
        not tied
    )
    model(source=SOURCE, target=TARGET).square().sum().backward()
    table = model.embed.weight.grad.abs().amax(-1) > 0
    assert table[10:15].all()  # the target
    assert table[:7].all() == (
        shared or tied
    )  # the source; and the head has a gradient for every token
    assert table[20:37].all() == tied


def test_two_vocabularies():
    model = model_of(19, share_embeddings=False)
    assert model.source_embed.weight.shape == (24, 36)
    assert model(source=SOURCE, target=TARGET).shape == (1, 5, VOCAB)
    with pytest.raises(IndexError, match=r"^source: must be ids of .* 0 to 18; got 30\.$"):
        model(source=SOURCE + 24, target=TARGET)
    with pytest.raises(ConfigError, match=r"^source: must have a row .*; got 2 and 3 rows\."):
        model(source=SOURCE.expand(2, -1), target=TARGET.expand(3, -1))


def test_two_vocabularies_have_no_embedding_in_common():
    with pytest.raises(
        ConfigError,
        match=r"^model\.share_embeddings: needs one vocabulary; got 37 tokens of the target",
    ):
        model_of(19)


@torch.no_grad()
def test_generation_projects_the_source_once():
    model, calls = model_of(), []
    for block in model.decoder.blocks:
        for name in ("q", "k", "v"):
            getattr(block.cross, name).register_forward_hook(
                lambda *_, name=name: calls.append(name)
            )
    for block in model.encoder.blocks:
        block.attn.q.register_forward_hook(lambda *_: calls.append("encoder"))
    model.generate(TARGET, max_new_tokens=6, temperature=0.0, source=SOURCE)
    counts = {name: calls.count(name) for name in ("encoder", "k", "v", "q")}
    assert counts == {
        "encoder": 2,
        "k": 2,
        "v": 2,
        "q": 2 * 6,
    }  # in each of two layers; a query for each call


@torch.no_grad()
def test_a_cross_mask_hides_the_source_also_step_by_step():
    """With a causal one, token i of the target sees the source up to token i."""
    model = model_of(
        decoder={"cross": {"mask": {"name": "causal"}}}, encoder={"layout": ["ffn"]}, kernel="sdpa"
    )
    whole = model(source=SOURCE, target=TARGET)
    other = SOURCE.clone()
    other[:, 3:] += 20
    assert torch.equal(model(source=other, target=TARGET)[:, :3], whole[:, :3])
    assert not torch.equal(model(source=other, target=TARGET)[:, 3], whole[:, 3])
    past, encoded = model.cache(1, 5, 7), model.encode(Tokens(ids=SOURCE))[0]
    steps = [model(target=TARGET[:, i : i + 1], source=encoded, cache=past) for i in range(5)]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "decoder",
    [
        {"layout": ["cross", "attn", "ffn"]},
        {"pattern": ["nowhere", "base"], "variants": {"nowhere": {"position": {"name": "none"}}}},
    ],
    ids=["cross first", "none first"],
)
def test_a_stacks_position_is_added_to_embeddings_whatever_its_first_block_uses(decoder):
    model = model_of(position="learned", decoder=decoder)
    assert model.decoder.position["base"].weight.shape == (29, 36)
    model(source=SOURCE, target=TARGET).sum().backward()
    assert (model.decoder.position["base"].weight.grad[:5].abs().amax(-1) > 0).all()


@torch.no_grad()
def test_the_embedding_scale_has_no_effect_before_an_embedding_norm():
    plain, normed = (
        model_of(position="none"),
        model_of(position="none", embed_norm=True, tie_embeddings=False),
    )
    for model, same in ((plain, False), (normed, True)):
        before, _ = model.hidden(Tokens(ids=TARGET), source=Tokens(ids=SOURCE))
        model.embed.weight.mul_(100)
        after, _ = model.hidden(Tokens(ids=TARGET), source=Tokens(ids=SOURCE))
        assert torch.allclose(after, before, atol=1e-3) == same


def test_the_head_transform_has_the_norm_of_the_output_stack():
    model = model_of(norm="layer", head_transform=True, decoder={"norm": {"name": "rms"}})
    assert isinstance(model.head.transform.norm, RMSNorm)
    assert isinstance(model.encoder.norm, nn.Module)
    assert not isinstance(model.encoder.norm, RMSNorm)


def test_missing_inputs_of_two_stacks_are_reported():
    model = model_of()
    with pytest.raises(
        ConfigError,
        match=r"^source: must be given to a model of two stacks\. Call model\(source=\.\.\.",
    ):
        model.hidden(Tokens(ids=TARGET))
    with pytest.raises(ConfigError, match=r"^source: must have the cache's source_length; got "):
        model.hidden(Tokens(ids=TARGET), model.cache(len(TARGET), 9), Tokens(ids=SOURCE))
