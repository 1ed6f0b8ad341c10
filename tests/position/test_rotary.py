"""Rotation: pairings, fractions and scalings are those of transformers; frequencies that
depend on the length are computed again.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.messages import messages
from tests.positions import rotated
from xformer_kit import ConfigError
from xformer_kit.laws import LAWS, LawBroken, faults, tiny_config, tiny_node
from xformer_kit.laws.tiny_composition import LENGTH, Composition
from xformer_kit.parity.case import LLAMA, Case, rope
from xformer_kit.parity.pairs import Pair, distance, make_pair, our_logits, their_logits
from xformer_kit.position import POSITIONS
from xformer_kit.position.scaling import LongRope

PAIRS = 5  # of head_dim 10
SHORT, LONG = [1.0, 1.1, 1.3, 1.9, 2.0], [1.0, 2.0, 3.5, 6.0, 8.0]
SCALINGS = {  # settings in transformers, and the tokens of the training
    "linear": ({"factor": 3.0}, 64),
    "dynamic": ({"factor": 2.0}, 8),
    "dynamic, short": ({"factor": 2.0}, LENGTH),
    "yarn": ({"factor": 4.0}, 64),
    "yarn, whole": ({"factor": 4.0, "truncate": False}, 64),
    "yarn, mscale": ({"factor": 4.0, "mscale": 0.7, "mscale_all_dim": 0.4}, 64),
    "yarn, gain": ({"factor": 4.0, "attention_factor": 1.5}, 64),
    "llama3": ({"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0}, 64),
    "longrope, short": ({"short_factor": SHORT, "long_factor": LONG, "factor": 4.0}, LENGTH),
    "longrope, long": ({"short_factor": SHORT, "long_factor": LONG, "factor": 4.0}, LENGTH - 1),
}


def llama(folder: Path, longest: int, **rotation: Any) -> Pair:
    """A small Llama with a rotation, in transformers and ours."""
    more = {"head_dim": 2 * PAIRS, "max_position_embeddings": longest}
    case = Case("LlamaForCausalLM", {**LLAMA, **rope("default"), **more})
    case.config["rope_parameters"] |= rotation
    return make_pair(case, folder)


@pytest.fixture(scope="module")
def unscaled(tmp_path_factory):
    """Logits of the Llama in transformers without a scaling."""
    pytest.importorskip("transformers")
    with torch.no_grad():
        return their_logits(llama(tmp_path_factory.mktemp("unscaled"), 64).theirs)


@pytest.mark.parametrize("name", SCALINGS)
@torch.no_grad()
def test_llamas_logits_with_a_scaled_rotation_are_equal(name, unscaled, tmp_path):
    settings, original = SCALINGS[name]
    kind = name.split(",")[0]
    longest = original if kind == "dynamic" else 4 * original
    settings = {"rope_type": kind, **settings}
    if kind in ("yarn", "llama3", "longrope"):
        settings["original_max_position_embeddings"] = original
    pair = llama(tmp_path, longest, **settings)
    theirs = their_logits(pair.theirs)
    assert distance(our_logits(pair.ours), theirs) < 1e-10
    differs = (unscaled - theirs).abs().max() > 1e-3
    assert differs == (name != "dynamic, short")


def test_pairs_are_those_of_gpt_j_and_of_gpt_neox():
    from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as neox
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions

    x = torch.randn(2, 3, 7, 8, generator=torch.Generator().manual_seed(0))
    sin, cos = create_sinusoidal_positions(7, 4).chunk(2, -1)
    first = gptj(
        x[..., :4].transpose(1, 2), sin.expand(2, -1, -1), cos.expand(2, -1, -1)
    ).transpose(1, 2)
    expected = torch.cat([first, x[..., 4:]], -1)
    torch.testing.assert_close(rotated({"pairing": "interleaved", "fraction": 0.5}, x), expected)
    angle = torch.arange(7)[:, None] * 10_000 ** -(torch.arange(0, 4, 2) / 4)
    angle = torch.cat([angle, angle], -1)[None]
    expected, _ = neox(x, x, angle.cos(), angle.sin())
    torch.testing.assert_close(rotated({"fraction": 0.5}, x), expected)


def test_the_two_pairings_differ_by_a_permutation_of_channels():
    x = torch.randn(1, 1, 5, 8)
    order = torch.arange(8).view(4, 2).T.flatten()  # 0, 2, 4, 6, 1, 3, 5, 7
    inter = rotated({"pairing": "interleaved"}, x)
    torch.testing.assert_close(inter[..., order], rotated({}, x[..., order]))


def test_scores_of_a_dynamic_rotation_go_by_the_length_of_each_text():
    """Rows of 13 and 7 tokens, and documents of 6 and 7 in a row, rotate as each by itself."""
    scaling = {"name": "dynamic", "factor": 2.0, "original": 6}
    case = Composition(tiny_config(position={"name": "rotary", "scaling": scaling}), "")
    model, ids = case.model(), case.ids
    with torch.no_grad():
        separate = [case.logits(model, ids[:1, :n]) for n in (6, 7, 13)]
        real = torch.arange(LENGTH) < torch.tensor([13, 7, 6])[:, None]
        rows = case.logits(model, ids[:1].expand(3, -1), real=real)
        for row, (n, expected) in enumerate(zip((13, 7, 6), reversed(separate), strict=True)):
            case.assert_close(rows[row, :n], expected[0], f"a row of {n} tokens")
        document = (torch.arange(LENGTH) >= 6).long()[None]
        packed = case.logits(model, torch.cat([ids[:1, :6], ids[:1, :7]], 1), document=document)
        case.assert_close(packed, torch.cat(separate[:2], 1), "documents")
    assert (
        separate[1][:, :6] - separate[0]
    ).abs().max() > 1e-3  # the seventh token changes the rotation of six


BY_LENGTH = {
    "dynamic": {"name": "dynamic", "factor": 2.0},
    "longrope": {"name": "longrope", "short": SHORT, "long": LONG, "factor": 2.0},
}


@pytest.mark.parametrize("original", [7, 9, 11])
@pytest.mark.parametrize("kind", BY_LENGTH)
@pytest.mark.parametrize("padded", [False, True])
@torch.no_grad()
def test_generation_beyond_the_trained_length_is_that_without_a_cache(kind, original, padded):
    """From a prompt of 9 tokens to 13, one by one."""
    case = Composition(
        tiny_config(
            position={"name": "rotary", "scaling": {**BY_LENGTH[kind], "original": original}}
        ),
        "",
    )
    model, past = case.model(), case.empty_cache(case.model())
    real = torch.arange(LENGTH) >= torch.tensor([0, 2, 5])[:, None] if padded else None
    for start, end in ((0, 9), (9, 10), (10, 11), (11, 12), (12, 13)):
        first = real[:, :9] if padded and not start else None
        got = case.logits(model, case.ids[:, start:end], real=first, cache=past)[:, -1]
        seen = real[:, :end] if padded else None
        case.assert_close(
            got, case.logits(model, case.ids[:, :end], real=seen)[:, -1], f"token {end}"
        )


@torch.no_grad()
def test_a_cache_that_was_read_anew_forgets_the_newest_tokens_and_goes_on():
    case = Composition(
        tiny_config(
            position={"name": "rotary", "scaling": {**BY_LENGTH["dynamic"], "original": 8}}
        ),
        "",
    )
    model, ids = case.model(), case.ids
    past = model.cache(3, LENGTH)
    for start, end in ((0, 6), (6, 10), (10, 11)):
        got = case.logits(model, ids[:, start:end], cache=past)
        case.assert_close(got[:, -1], case.logits(model, ids[:, :end])[:, -1], f"to {end}")
    past.select(torch.tensor([2, 0, 1]))
    for kept, end in ((9, 10), (5, 7), (3, 8)):  # the caches hold 6, then 5, then 3
        past.rewind(past.length - kept)
        got = case.logits(model, ids[[2, 0, 1], kept:end], cache=past)
        case.assert_close(
            got[:, -1], case.logits(model, ids[[2, 0, 1], :end])[:, -1], f"again to {end}"
        )


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        (
            {"fraction": 0.5},
            (
                ": rotary turns pairs of channels, so position.fraction * attn.head_dim must be"
                " even, and at least 2; got 5. Try"
                " attn.head_dim=10 position.fraction=1."
            ),
        ),
        ({"fraction": 1.5}, ".fraction: must be above 0 and at most 1; got 1.5."),
        (
            {"scaling": "yran"},
            (
                ".scaling: no scaling is called 'yran'. Did you mean 'yarn'? Known: dynamic,"
                " linear, llama3, longrope, none, yarn."
            ),
        ),
        ({"scaling": {"name": "linear", "factor": 0}}, ".scaling.factor: must be above 0; got 0."),
        (
            {"scaling": {"name": "yarn", "mscale": 1.0}},
            (
                ".scaling.mscale: needs mscale_all, and mscale_all mscale; got 1.0 and null. Set"
                " both, or none."
            ),
        ),
        (
            {"scaling": {"name": "llama3", "high": 1.0}},
            ".scaling.high: must be above 1.0; got 1.0. That is low.",
        ),
        (
            {"scaling": {"name": "longrope", "short": [1.0], "long": [2.0]}},
            ".scaling: 'longrope' must have a number for each of the 5 pairs of channels; got 1.",
        ),
    ],
)
def test_a_rotation_that_cannot_be_is_refused(node, sentence):
    assert messages(faults(tiny_config(position={"name": "rotary", **node}))) == [
        f"position{sentence}"
    ]


def test_the_fraction_that_is_proposed_gives_an_even_number_of_channels():
    wide = {"attn": {"name": "multi_head", "head_dim": 200}}
    for fraction, of_channels in ((0.485, 97), (1.0, None)):
        found = faults(tiny_config(position={"name": "rotary", "fraction": fraction}, **wide))
        assert [f"got {of_channels}. Try attn.head_dim=200" in m for m in messages(found)] == [
            True
        ] * (fraction < 1)


def test_the_gain_of_longrope_worked_out():
    """sqrt(1 + ln(factor) / ln(original)): sqrt(2) where both are 2, and 1 where ln(original) is
    0.
    """
    gains = {of: LongRope((1.0,), (1.0,), factor=2.0, original=of).gain(64) for of in (1, 2, 16)}
    assert gains == pytest.approx({1: 1.0, 2: 2**0.5, 16: 1.25**0.5})
    assert LongRope((1.0,), (1.0,), original=2).gain(64) == 1


def test_a_scaling_by_length_has_no_place_between_two_texts():
    cross = {"cross": {"position": {"name": "rotary", "scaling": "dynamic"}}}
    (found,) = messages(faults(tiny_config("encoder_decoder", position="none", decoder=cross)))
    assert (
        found
        == "model.decoder.cross.position.scaling: 'dynamic' depends on the length of one text, and"
        " cross attention has two. Use another scaling there."
    )


def test_a_choice_without_options_is_completed_like_one_with_its_defaults():
    assert tiny_node("position", "rotary")["scaling"] == {"name": "none"}
    with pytest.raises(ConfigError, match=r"'ntk'\. Did you mean 'dynamic'"):
        POSITIONS.create({"name": "rotary", "scaling": "ntk"}, head_dim=8, max_len=16)


@pytest.mark.parametrize("law", ["shift", "cache"])
def test_a_rotation_that_depends_on_the_length_declares_the_law_that_it_breaks(law):
    """The law is broken if texts may be longer than `original`."""
    dynamic = {"name": "dynamic", "original": 8}
    config = tiny_config(position={"name": "rotary", "scaling": dynamic})
    assert "depends on the length of the text" in LAWS[law](config)
    with pytest.raises(LawBroken):
        LAWS[law].__wrapped__(Composition(config, law))  # without the exemption
    assert (
        LAWS[law](
            tiny_config(position={"name": "rotary", "scaling": {**dynamic, "original": None}})
        )
        is None
    )
