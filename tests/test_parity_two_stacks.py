"""The same weights give the same logits as torch's and transformers' encoders and encoder-decoders:
torch.nn.Transformer, torch.nn.TransformerEncoder, BERT with its masked-token head, BART and Marian.

Every parameter is randomised, and batches are padded, so that nothing that is missing can hide.
"""

import os

import pytest
import torch
from torch import nn

from xformer_kit import compose
from xformer_kit.laws import tiny
from xformer_kit.laws.case import LENGTH, SOURCE, VOCAB
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

DIM, HEADS, LAYERS, WIDTH, POSITIONS = 36, 6, 3, 52, 29
SMALL = {"dim": DIM, "layers": LAYERS, "max_len": POSITIONS, "vocab_multiple": 1}
ATTN = {"name": "multi_head", "heads": HEADS, "kv_heads": None, "head_dim": None, "bias": True}
LAYER_NORM = {"name": "layer", "eps": 1e-5}
State = dict[str, torch.Tensor]


def randomised(model: nn.Module) -> nn.Module:
    """In evaluation mode and float64, with every parameter moved away from its start."""
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.3 if parameter.ndim < 2 else parameter.shape[-1] ** -0.5
            parameter.mul_(1.0 if parameter.ndim < 2 else 0.0).add_(
                torch.randn(parameter.shape), alpha=scale
            )
    return model.double().eval()


def loaded(config, state: State) -> Model:
    model = build_model(config, VOCAB).double().eval()
    model.load_state_dict(state)  # strict: every parameter of ours comes from the peer
    return model


def drawn(length: int, seed: int) -> torch.Tensor:
    return torch.randint(2, VOCAB, (3, length), generator=torch.Generator().manual_seed(seed))


IDS, SOURCES = drawn(LENGTH, 3), drawn(SOURCE, 4)
REAL = torch.arange(LENGTH) < torch.tensor([LENGTH, 9, 4])[:, None]
SOURCE_REAL = torch.arange(SOURCE) < torch.tensor([5, SOURCE, 8])[:, None]


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10 * theirs.abs().max().item())


def renamed(prefix: str, theirs: str, pairs: dict[str, str], state: State) -> State:
    """Weights and biases of `theirs.<value>` under `prefix.<key>`."""
    both = ("weight", "bias")
    return {
        f"{prefix}.{our}.{part}": state[f"{theirs}.{their}.{part}"]
        for our, their in pairs.items()
        for part in both
    }


# torch.nn.Transformer


def torch_attention(prefix: str, theirs: str, state: State) -> State:
    """Their queries, keys and values lie in one matrix."""
    found = renamed(prefix, theirs, {"o": "out_proj"}, state)
    for part in ("weight", "bias"):
        values = state[f"{theirs}.in_proj_{part}"].chunk(3)
        found |= {
            f"{prefix}.{name}.{part}": value for name, value in zip("qkv", values, strict=True)
        }
    return found


def torch_stack(name: str, theirs: str, state: State, pre: bool) -> State:
    sublayers = {"attn": "self_attn"} | ({"cross": "multihead_attn"} if name == "decoder" else {})
    found: State = {}
    for i in range(LAYERS):
        block, them = f"{name}.{i}", f"{theirs}.layers.{i}"
        found |= renamed(block, them, {"ffn.up": "linear1", "ffn.down": "linear2"}, state)
        for their_norm, sublayer in enumerate([*sublayers, "ffn"], 1):
            ours = f"placement.{sublayer}.norm" + (".0" if pre else "")
            found |= renamed(block, them, {ours: f"norm{their_norm}"}, state)
        for our, their in sublayers.items():
            found |= torch_attention(f"{block}.{our}", f"{them}.{their}", state)
    return found | renamed(name, theirs, {"norm": "norm"}, state)


def torch_encoder(pre: bool) -> nn.Module:
    layer = nn.TransformerEncoderLayer(DIM, HEADS, WIDTH, 0.0, batch_first=True, norm_first=pre)
    return nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(DIM), enable_nested_tensor=False)


def like_torch(model: str, pre: bool) -> dict:
    return tiny(
        model,
        attn=ATTN,
        position="none",
        norm=LAYER_NORM,
        placement="pre" if pre else "post",
        ffn={"name": "mlp", "width": WIDTH, "activation": "relu", "bias": True},
        head_transform=False,
        head_bias=False,
        final_norm=True,
        **SMALL,
    )


@pytest.mark.parametrize("pre", [True, False], ids=["pre", "post"])
@torch.no_grad()
def test_torch_transformer(pre):
    shape = (DIM, HEADS, LAYERS, LAYERS, WIDTH, 0.0)
    encoder = torch_encoder(pre)
    theirs = randomised(
        nn.Transformer(*shape, custom_encoder=encoder, batch_first=True, norm_first=pre)
    )
    embed = torch.randn(VOCAB, DIM, dtype=torch.float64)
    state = theirs.state_dict()
    stacks = [torch_stack(name, name, state, pre) for name in ("encoder", "decoder")]
    ours = loaded(
        like_torch("encoder_decoder", pre), {"embed.weight": embed} | stacks[0] | stacks[1]
    )
    future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    expected = (
        theirs(
            embed[SOURCES],
            embed[IDS],
            tgt_mask=future,
            src_key_padding_mask=~SOURCE_REAL,
            tgt_key_padding_mask=~REAL,
            memory_key_padding_mask=~SOURCE_REAL,
        )
        @ embed.T
    )
    got = ours(source=SOURCES, target=IDS, source_real=SOURCE_REAL, target_real=REAL)
    close(got[REAL], expected[REAL])


@pytest.mark.parametrize("pre", [True, False], ids=["pre", "post"])
@torch.no_grad()
def test_torch_transformer_encoder(pre):
    theirs = randomised(torch_encoder(pre))
    embed = torch.randn(VOCAB, DIM, dtype=torch.float64)
    state = {f"them.{name}": value for name, value in theirs.state_dict().items()}
    ours = loaded(
        like_torch("encoder", pre),
        {"embed.weight": embed} | torch_stack("encoder", "them", state, pre),
    )
    expected = theirs(embed[IDS], src_key_padding_mask=~REAL) @ embed.T
    close(ours(IDS, real=REAL)[REAL], expected[REAL])


# transformers: post-norm blocks behind embeddings with a norm

NAMES = {
    "bert": {
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "o": "attention.output.dense",
    },
    "bart": {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"},
}


def like_transformers(model: str, **more) -> dict:
    eps = {"name": "layer", "eps": 1e-12} if model == "encoder" else LAYER_NORM
    parts = {
        "attn": ATTN,
        "position": "learned",
        "norm": eps,
        "placement": "post",
        "ffn": {"name": "mlp", "width": WIDTH, "activation": "gelu", "bias": True},
        "embed_norm": True,
    }
    return tiny(model, **SMALL, **{**parts, **more})


@pytest.fixture(scope="module")
def bert():
    config = transformers.BertConfig(
        vocab_size=VOCAB,
        hidden_size=DIM,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=WIDTH,
        max_position_embeddings=POSITIONS,
        type_vocab_size=2,
        attn_implementation="eager",
    )
    theirs = randomised(transformers.BertForMaskedLM(config))
    state, embeddings, head = theirs.state_dict(), "bert.embeddings", "cls.predictions"
    ours = {
        "embed.weight": state[f"{embeddings}.word_embeddings.weight"],
        "token_type.weight": state[f"{embeddings}.token_type_embeddings.weight"],
        "encoder.position.base.weight": state[f"{embeddings}.position_embeddings.weight"],
        "head.bias": state[f"{head}.bias"],
    }
    ours |= renamed("encoder", embeddings, {"embed_norm": "LayerNorm"}, state)
    ours |= renamed(
        "head.transform", f"{head}.transform", {"dense": "dense", "norm": "LayerNorm"}, state
    )
    for i in range(LAYERS):
        block, them = f"encoder.{i}", f"bert.encoder.layer.{i}"
        ours |= renamed(f"{block}.attn", them, NAMES["bert"], state)
        ours |= renamed(
            block, them, {"ffn.up": "intermediate.dense", "ffn.down": "output.dense"}, state
        )
        norms = {
            "placement.attn.norm": "attention.output.LayerNorm",
            "placement.ffn.norm": "output.LayerNorm",
        }
        ours |= renamed(block, them, norms, state)
    config = like_transformers("encoder", token_types=2, head_transform=True, head_bias=True)
    return theirs, loaded(config, ours)


@torch.no_grad()
def test_bert_with_its_masked_token_head(bert):
    theirs, ours = bert
    segment = (torch.arange(LENGTH) > 5).long().expand(3, -1)
    expected = theirs(IDS, attention_mask=REAL.long(), token_type_ids=segment).logits
    close(ours(IDS, real=REAL, segment=segment)[REAL], expected[REAL])
    close(ours(IDS), theirs(IDS).logits)


def test_berts_gradients_of_a_masked_token(bert):
    theirs, ours = bert
    for model, logits in ((theirs, theirs(IDS).logits), (ours, ours(IDS))):
        model.zero_grad()
        torch.nn.functional.cross_entropy(logits[:, 4], IDS[:, 7]).backward()
    close(ours.embed.weight.grad, theirs.get_input_embeddings().weight.grad)


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


@pytest.fixture(scope="module")
def bart():
    """Its learned positions begin at row 2, and its logits have a bias that no gradient reaches."""
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
    theirs = randomised(transformers.BartForConditionalGeneration(config))
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
    )  # theirs begins with a start token, or adds one
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
    answers = (theirs(SOURCES, decoder_input_ids=IDS).logits, ours(source=SOURCES, target=IDS))
    for model, logits in zip(bart, answers, strict=True):
        model.zero_grad()
        torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()
        ).backward()
    close(ours.embed.weight.grad, theirs.get_input_embeddings().weight.grad)


MARIAN = {
    "position": {"name": "sinusoidal", "layout": "concatenated"},
    "ffn": {"name": "mlp", "width": WIDTH, "activation": "silu", "bias": True},
    "embed_norm": False,
    "embed_scale": "sqrt_dim",
}


@pytest.fixture(scope="module")
def marian():
    """Its sinusoids are a table in fp32, and the bias of its logits is zero."""
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
    theirs = randomised(transformers.MarianMTModel(config))
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


def test_marian_has_as_many_parameters(marian):
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
    """What stands between the start and the end, where there is one."""
    return ids[1 : ids.index(1)] if 1 in ids else ids[1:]


def test_marians_gradients(marian):
    """The row of the padding is one that theirs does not learn where it is read, so it is left
    out.
    """
    theirs, ours = marian
    answers = (theirs(SOURCES, decoder_input_ids=IDS).logits, ours(source=SOURCES, target=IDS))
    for model, logits in zip(marian, answers, strict=True):
        model.zero_grad()
        torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()
        ).backward()
    close(ours.embed.weight.grad[1:], theirs.get_input_embeddings().weight.grad[1:])
