"""The same weights give the same logits as the encoder-decoders BART and Marian."""

import pytest
import torch

from tests.peers import (
    DIM,
    HEADS,
    LAYERS,
    POSITIONS,
    WIDTH,
    State,
    close,
    loaded,
    next_token_gradient,
    randomised,
    transformers,
)
from tests.two_stack_peers import IDS, NAMES, REAL, SOURCE_REAL, SOURCES, like_transformers, renamed
from xformer_kit import compose
from xformer_kit.laws.tiny_composition import VOCAB


def bart_blocks(name: str, state: State) -> State:
    """The blocks of a stack, in BART and in Marian."""
    attentions = {"attn": "self_attn"} | ({"cross": "encoder_attn"} if name == "decoder" else {})
    norms = {f"placement.{our}.norm": f"{their}_layer_norm" for our, their in attentions.items()}
    norms |= {"placement.ffn.norm": "final_layer_norm", "ffn.up": "fc1", "ffn.down": "fc2"}
    found: State = {}
    for i in range(LAYERS):
        block, them = f"{name}.{i}", f"model.{name}.layers.{i}"
        found |= renamed(block, them, norms, state)
        for our, their in attentions.items():
            found |= renamed(f"{block}.{our}", f"{them}.{their}", NAMES["bart"], state)
    return found


def gradients(theirs, ours):
    """Gradients of the next-token loss by the embeddings, of our model and of theirs."""
    logits = theirs(SOURCES, decoder_input_ids=IDS).logits
    return (
        next_token_gradient(ours.embed.weight, ours(source=SOURCES, target=IDS), IDS),
        next_token_gradient(theirs.get_input_embeddings().weight, logits, IDS),
    )


@pytest.fixture(scope="module")
def bart():
    """Learned positions begin at row 2; the bias of the logits is a buffer."""
    config = transformers.BartConfig(
        vocab_size=VOCAB,
        d_model=DIM,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=WIDTH,
        decoder_ffn_dim=WIDTH,
        max_position_embeddings=POSITIONS,
        activation_function="gelu",
        pad_token_id=0,
        attn_implementation="eager",
        scale_embedding=False,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
    )
    theirs = randomised(transformers.BartForConditionalGeneration(config)).double()
    theirs.final_logits_bias.normal_(0, 0.1)
    state = theirs.state_dict()
    ours = {
        "embed.weight": state["model.shared.weight"],
        "head.bias": state["final_logits_bias"][0],
    }
    for name in ("encoder", "decoder"):
        ours[f"{name}.position.base.weight"] = state[f"model.{name}.embed_positions.weight"][2:]
        ours |= renamed(
            name, f"model.{name}", {"embed_norm": "layernorm_embedding"}, state
        ) | bart_blocks(name, state)
    return theirs, loaded(like_transformers("encoder_decoder", head_bias=True), ours)


@torch.no_grad()
def test_bart(bart):
    theirs, ours = bart
    expected = theirs(SOURCES, attention_mask=SOURCE_REAL.long(), decoder_input_ids=IDS).logits
    close(ours(source=SOURCES, target=IDS, source_real=SOURCE_REAL), expected)


@torch.no_grad()
def test_barts_greedy_continuations(bart):
    theirs, ours = bart
    prompt = torch.cat(
        [torch.ones(3, 1, dtype=torch.int64), IDS[:, :3]], 1
    )  # BART begins with a start token, or adds one
    expected = theirs.generate(
        SOURCES,
        attention_mask=SOURCE_REAL.long(),
        decoder_input_ids=prompt,
        max_new_tokens=8,
        do_sample=False,
        num_beams=1,
        eos_token_id=[],
        pad_token_id=0,
    )
    got = ours.generate(
        prompt, max_new_tokens=8, temperature=0.0, source=SOURCES, source_real=SOURCE_REAL
    )
    assert torch.equal(got, expected)


def test_barts_gradients(bart):
    theirs, ours = bart
    close(*gradients(theirs, ours))


MARIAN = {
    "position": {"name": "sinusoidal", "layout": "concatenated"},
    "ffn": {"name": "mlp", "width": WIDTH, "activation": "silu", "bias": True},
    "embed_norm": False,
    "embed_scale": "sqrt_dim",
}


@pytest.fixture(scope="module")
def marian():
    """Sinusoidal positions are a table in fp32; the bias of the logits is zero."""
    config = transformers.MarianConfig(
        vocab_size=VOCAB,
        d_model=DIM,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=WIDTH,
        decoder_ffn_dim=WIDTH,
        max_position_embeddings=POSITIONS,
        activation_function="swish",
        pad_token_id=0,
        attn_implementation="eager",
        scale_embedding=True,
        eos_token_id=1,
        decoder_start_token_id=0,
        forced_eos_token_id=None,
    )
    theirs = randomised(transformers.MarianMTModel(config)).double()
    for stack in (theirs.model.encoder, theirs.model.decoder):
        stack.embed_positions.weight.data = stack.embed_positions.create_weight().double()
    state = theirs.state_dict()
    ours = {"embed.weight": state["model.shared.weight"]}
    ours |= bart_blocks("encoder", state) | bart_blocks("decoder", state)
    return theirs, loaded(like_transformers("encoder_decoder", **MARIAN), ours)


@torch.no_grad()
def test_marian(marian):
    theirs, ours = marian
    expected = theirs(
        SOURCES,
        attention_mask=SOURCE_REAL.long(),
        decoder_input_ids=IDS,
        decoder_attention_mask=REAL.long(),
    ).logits
    got = ours(source=SOURCES, target=IDS, source_real=SOURCE_REAL, target_real=REAL)
    close(got[REAL], expected[REAL])
    close(ours(source=SOURCES, target=IDS), theirs(SOURCES, decoder_input_ids=IDS).logits)


def test_marian_has_the_same_number_of_parameters(marian):
    theirs, ours = (
        sum(p.numel() for p in model.parameters() if p.requires_grad) for model in marian
    )
    assert ours == theirs


@pytest.mark.parametrize(
    "change",
    [{"embed_scale": 1.0}, {"position": {"name": "sinusoidal", "layout": "interleaved"}}],
    ids=["scale", "layout"],
)
@torch.no_grad()
def test_marian_needs_both_its_scale_and_its_layout(marian, change):
    theirs, ours = marian
    other = loaded(like_transformers("encoder_decoder", **{**MARIAN, **change}), ours.state_dict())
    with pytest.raises(AssertionError, match="not close"):
        close(other(source=SOURCES, target=IDS), theirs(SOURCES, decoder_input_ids=IDS).logits)


@torch.no_grad()
def test_the_recipe_for_tatoeba_has_marians_architecture(marian, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    sizes = (
        f"model.dim={DIM} model.layers={LAYERS} attn.heads={HEADS} ffn.width={WIDTH}"
        " ffn.activation=silu"
    )
    theirs, ours = marian
    recipe = loaded(
        compose(["experiment=tatoeba", f"data.path={tmp_path}/pairs.tsv", *sizes.split()]),
        ours.state_dict(),
    )
    close(recipe(source=SOURCES, target=IDS), theirs(SOURCES, decoder_input_ids=IDS).logits)


@torch.no_grad()
def test_marians_beams(marian):
    theirs, ours = marian
    expected = theirs.generate(
        SOURCES,
        attention_mask=SOURCE_REAL.long(),
        max_new_tokens=9,
        num_beams=5,
        do_sample=False,
        length_penalty=1.0,
    )
    got = ours.generate(
        source=SOURCES, source_real=SOURCE_REAL, start=0, end=1, max_new_tokens=9, beam=5
    )
    for mine, their in zip(got.tolist(), expected.tolist(), strict=True):
        assert _answer(mine) == _answer(their)


def _answer(ids: list[int]) -> list[int]:
    """The tokens between the start and the end; if there is no end, all after the start."""
    return ids[1 : ids.index(1)] if 1 in ids else ids[1:]


def test_marians_gradients(marian):
    """Without the row of the padding, which has no gradient as an input in Marian."""
    theirs, ours = marian
    mine, other = gradients(theirs, ours)
    close(mine[1:], other[1:])
