"""Published models with inputs that their logits do not have to have: token types, and padding in
targets; and what they generate, greedily and with beams.
"""

import pytest
import torch

from xformer_kit import compose
from xformer_kit.laws.tiny_composition import LENGTH
from xformer_kit.model.build import build_model
from xformer_kit.parity.case import DIM, HEADS, LAYERS, VOCAB, WIDTH
from xformer_kit.parity.cases import CASES
from xformer_kit.parity.float64 import KeepFloat64
from xformer_kit.parity.pairs import (
    IDS,
    RIGHT,
    SOURCE_REAL,
    SOURCES,
    Pair,
    distance,
    make_pair,
    our_logits,
    their_logits,
)

pytest.importorskip("transformers")


def cases(first, *others):
    """Parameters: the first is in `make test`, the others are extended."""
    return [first, *(pytest.param(name, marks=pytest.mark.extended) for name in others)]


def pair_of(name, folder, **changes) -> Pair:
    """The pair of a case with changes of its arguments."""
    case = CASES[name]
    return make_pair(case._replace(config={**case.config, **changes}), folder)


@torch.no_grad()
@pytest.mark.parametrize("name", cases("bert", "albert", "electra", "deberta without buckets"))
def test_token_types(name, tmp_path):
    pair = pair_of(name, tmp_path)
    segment = (torch.arange(LENGTH) > 5).long().expand(3, -1)
    with KeepFloat64():
        options = {"attention_mask": RIGHT.long(), "token_type_ids": segment}
        theirs = pair.theirs(IDS, **options).logits
    ours = pair.ours(IDS, real=RIGHT, segment=segment)
    assert distance(ours[RIGHT], theirs[RIGHT]) < 1e-10
    assert distance(our_logits(pair.ours, RIGHT)[RIGHT], theirs[RIGHT]) > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("name", cases("t5", "bart", "marian", "t5gemma"))
def test_padded_sources_and_targets(name, tmp_path):
    pair = pair_of(name, tmp_path)
    with KeepFloat64():
        masks = {"attention_mask": SOURCE_REAL.long(), "decoder_attention_mask": RIGHT.long()}
        theirs = pair.theirs(SOURCES, decoder_input_ids=IDS, use_cache=False, **masks).logits
    ours = pair.ours(source=SOURCES, target=IDS, source_real=SOURCE_REAL, target_real=RIGHT)
    assert distance(ours[RIGHT], theirs[RIGHT]) < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("name", cases("llama", "gpt2"))
def test_greedy_continuations(name, tmp_path):
    pair = pair_of(name, tmp_path)
    options = {"do_sample": False, "eos_token_id": [], "pad_token_id": 0}
    mask = torch.ones_like(IDS)
    expected = pair.theirs.generate(IDS, attention_mask=mask, max_new_tokens=8, **options)
    assert torch.equal(pair.ours.generate(IDS, max_new_tokens=8, temperature=0.0), expected)


@torch.no_grad()
def test_greedy_continuations_of_padded_sources(tmp_path):
    """BART begins with a start token, or adds one."""
    pair = pair_of("bart", tmp_path)
    prompt = torch.cat([torch.full((3, 1), 2), IDS[:, :3]], 1)
    expected = pair.theirs.generate(
        SOURCES,
        attention_mask=SOURCE_REAL.long(),
        decoder_input_ids=prompt,
        max_new_tokens=8,
        do_sample=False,
        num_beams=1,
        eos_token_id=[],
        pad_token_id=0,
    )
    options = {"temperature": 0.0, "source": SOURCES, "source_real": SOURCE_REAL}
    assert torch.equal(pair.ours.generate(prompt, max_new_tokens=8, **options), expected)


@torch.no_grad()
def test_beams(tmp_path):
    pair = pair_of("marian", tmp_path, decoder_start_token_id=0)
    real, options = SOURCE_REAL, {"max_new_tokens": 9}
    expected = pair.theirs.generate(
        SOURCES,
        attention_mask=real.long(),
        num_beams=5,
        do_sample=False,
        length_penalty=1.0,
        **options,
    )
    got = pair.ours.generate(source=SOURCES, source_real=real, start=0, end=2, beam=5, **options)
    for mine, their in zip(got.tolist(), expected.tolist(), strict=True):
        assert answer(mine) == answer(their)


def answer(ids: list[int]) -> list[int]:
    """The tokens between the start and the end; if there is no end, all after the start."""
    return ids[1 : ids.index(2)] if 2 in ids else ids[1:]


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [("model", "embed_scale", 1.0), ("position", "layout", "interleaved")],
)
@torch.no_grad()
def test_marian_needs_both_its_scale_and_its_layout(kind, option, value, tmp_path):
    pair = pair_of("marian", tmp_path)
    assert pair.composition.config[kind].get(option) != value
    pair.composition.config[kind][option] = value
    other = build_model(pair.composition.config, VOCAB).double().eval()
    other.load_state_dict(pair.ours.state_dict())
    assert distance(our_logits(other), their_logits(pair.theirs)) > 1e-3


@torch.no_grad()
def test_the_recipe_for_tatoeba_has_marians_architecture(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    stacks = {"encoder_layers": LAYERS, "decoder_layers": LAYERS}
    stacks |= {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    pair = pair_of("marian", tmp_path / "marian", **stacks, encoder_ffn_dim=WIDTH)
    words = f"model.dim={DIM} model.layers={LAYERS} attn.heads={HEADS} ffn.width={WIDTH}"
    words += f" ffn.activation=silu data.path={tmp_path}/pairs.tsv"
    recipe = build_model(compose(["experiment=tatoeba", *words.split()]), VOCAB).double().eval()
    state = pair.ours.state_dict()
    state.pop("head.bias")  # a buffer in Marian, which is 0
    state["embed.weight"] = state["embed.weight"][:VOCAB]  # without rows that fill it up
    pair.theirs.final_logits_bias.zero_()
    recipe.load_state_dict(state)
    assert distance(our_logits(recipe), their_logits(pair.theirs)) < 1e-10
