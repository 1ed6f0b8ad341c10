"""attn=multi_head: the equation of each option, and the parameters of the plain case."""

import pytest
import torch
from refusals import refusals
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from xformer_kit import build, compose
from xformer_kit.kernel import Reference
from xformer_kit.laws import LAWS, LawBroken, faults, tiny_config
from xformer_kit.laws.tiny_composition import LENGTH, VOCAB, Composition, randomise
from xformer_kit.model.build import build_model
from xformer_kit.tensors.fused_projections import with_fused_projections

IDS = torch.arange(2 * LENGTH).view(2, LENGTH) % VOCAB


def model_of(changes=None, **attn):
    model = build_model(
        tiny_config(attn={"name": "multi_head", **attn}, position="none", **(changes or {})), VOCAB
    )
    randomise(model)
    return model.double().eval()


def seen_by(model, depth):
    """What the attention of a layer reads, and what it gives."""
    seen = []
    hook = model.decoder.blocks[depth].attn.register_forward_hook(
        lambda _, args, out: seen.extend((args[0], out))
    )
    with torch.no_grad():
        model(IDS)
    hook.remove()
    return seen


def written_out(attn, x, v=None, gate=None):
    """softmax(q k^T / sqrt(d)) v, head by head."""
    h, kv, d = 6, attn.kv_heads, attn.head_dim
    q, k = attn.q(x).unflatten(-1, (h, d)), attn.k(x).unflatten(-1, (kv, d))
    v = attn.v(x).unflatten(-1, (kv, attn.v_head_dim)) if v is None else v
    heads = []
    for i in range(h):
        j = i // (h // kv)
        scores = q[:, :, i] @ k[:, :, j].transpose(1, 2) * attn.scale
        hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        heads.append(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v[:, :, j])
    out = torch.stack(heads, 2)
    return attn.o((out if gate is None else out * gate).flatten(2))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"v_head_dim": 11},
        {"v_head_dim": 3, "kv_heads": 1},
        {"bias": ["q", "v"]},
        {"scale": 1.0},
        {"scale": 0.05},
    ],
    ids=str,
)
def test_the_equation(options):
    model = model_of(**options)
    x, out = seen_by(model, 1)
    attn = model.decoder.blocks[1].attn
    with torch.no_grad():
        assert_close(out, written_out(attn, x))
    assert attn.o.in_features == 6 * attn.v_head_dim


def test_biases_by_name():
    def biased(bias):
        attn = model_of(bias=bias).decoder.blocks[0].attn
        return [name for name in "qkvo" if getattr(attn, name).bias is not None]

    assert [biased(b) for b in (True, False, [], ["q", "k", "v"], ["o"])] == [
        ["q", "k", "v", "o"],
        [],
        [],
        ["q", "k", "v"],
        ["o"],
    ]


def test_a_scale_by_layer_is_divided_by_the_number_of_the_layer():
    blocks = model_of({"layers": 3}, scale="by_layer").decoder.blocks
    expected = [10**-0.5, 10**-0.5 / 2, 10**-0.5 / 3]
    assert [float(block.attn.scale) for block in blocks] == pytest.approx(expected)


@pytest.mark.parametrize("after", [False, True])
def test_clip_normed_bounds_queries_and_keys_after_their_norms(after):
    norm = {"name": "each_head", "after": after}
    model = model_of(clip=0.25, clip_normed=True, qk_norm=norm)
    plain = model_of(qk_norm=norm)
    plain.load_state_dict(model.state_dict())
    attn = plain.decoder.blocks[0].attn
    for name in ("q_norm", "k_norm"):
        setattr(attn, name, nn.Sequential(getattr(attn, name), nn.Hardtanh(-0.25, 0.25)))
    attn.v = nn.Sequential(attn.v, nn.Hardtanh(-0.25, 0.25))
    with torch.no_grad():
        assert_close(seen_by(model, 0), seen_by(plain, 0))


def test_clip_bounds_queries_keys_and_values():
    model = model_of(clip=0.25, bias=True)
    x, out = seen_by(model, 0)
    attn = model.decoder.blocks[0].attn
    q, k, v = attn.q, attn.k, attn.v
    assert (q(x).abs() > 0.25).any()
    for name, layer in (("q", q), ("k", k), ("v", v)):
        setattr(attn, name, nn.Sequential(layer, nn.Hardtanh(-0.25, 0.25)))
    with torch.no_grad():
        assert_close(out, written_out(attn, x))


@pytest.mark.parametrize("gate", ["head", "element"])
def test_a_gate_is_a_sigmoid_of_the_input_times_the_output_of_the_heads(gate):
    model = model_of(gate=gate, v_head_dim=7)
    x, out = seen_by(model, 0)
    attn = model.decoder.blocks[0].attn
    assert attn.gate.input.weight.shape == ((6 if gate == "head" else 42), 36)
    assert attn.gate.input.bias is None
    factor = torch.sigmoid(x @ attn.gate.input.weight.t()).unflatten(-1, (6, -1))
    with torch.no_grad():
        assert_close(out, written_out(attn, x, gate=factor))


def test_a_constant_gate_is_a_number_of_each_head_that_starts_from_one():
    fresh = build_model(tiny_config(attn={"name": "multi_head", "gate": "constant"}), VOCAB)
    assert fresh.decoder.blocks[0].attn.gate.weight.eq(1).all()
    model = model_of(gate="constant")
    x, out = seen_by(model, 0)
    attn = model.decoder.blocks[0].attn
    with torch.no_grad():
        assert_close(out, written_out(attn, x, gate=attn.gate.weight[:, None]))


def test_unit_queries_and_keys_have_scores_within_the_learned_scale():
    attn = model_of(qk_norm="l2").decoder.blocks[0].attn
    assert attn.scale == 10**0.5
    q, k = torch.randn(1, 6, 5, 10).double(), torch.randn(1, 3, 5, 10).double()
    assert_close(attn.q_norm(q).norm(dim=-1), attn.q_norm.weight.abs()[:, None].expand(1, 6, 5))
    assert_close(attn.k_norm(k), F.normalize(k, dim=-1))
    assert attn.state_dict().keys() >= {"q_norm.weight"}
    assert "k_norm.weight" not in attn.state_dict()


@pytest.mark.parametrize(
    ("words", "norm"),
    [
        (["attn.qk_norm=true"], "RMSNorm"),
        (["attn.qk_norm=head"], "RMSNorm"),
        (["attn={qk_norm: {name: l2, after: true}}"], "ScaledDirection"),
        (["attn.qk_norm=true", "model.decoder.attn={qk_norm: {groups: 2}}"], "OverGroups"),
        (["attn.qk_norm=false"], "NoneType"),
        (["experiment=ngpt", "attn.qk_norm=false", "norm.eps=1e-6"], "NoneType"),
    ],
)
def test_norms_of_queries_and_keys_may_be_chosen_by_a_word_or_a_switch(words, norm):
    attn = build(compose(["logger=none", *words, "model.layers=1"]), 7).decoder.blocks[0].attn
    assert (type(attn.q_norm).__name__, attn.norm_after_rotation) == (
        norm,
        norm == "ScaledDirection",
    )


def test_weights_of_norms_of_queries_and_keys_keep_their_names():
    names = {"head": "weight", "each_head": "0.weight", "projection": "norm.weight"}
    for name, end in names.items():
        assert {f"q_norm.{end}", f"k_norm.{end}"} <= model_of(qk_norm=name).decoder.blocks[
            0
        ].attn.state_dict().keys()


def test_dropout_on_weights_keeps_their_mean():
    torch.manual_seed(0)
    weights = torch.zeros(1, 2, 40, 500)

    class Prepared:
        prepared = None, None

    dropped = Reference().weights(
        None, None, Prepared, 1.0, 0.25, weights, lambda scores, seen: scores.softmax(-1)
    )
    assert dropped.sum(-1).mean() == pytest.approx(1, abs=0.02)
    assert (dropped == 0).float().mean() == pytest.approx(0.25, abs=0.02)


OPTIONS = [
    {"v_head_dim": 4, "bias": ["q", "v"], "gate": "head"},
    {"qk_norm": "each_head", "clip": 1.0, "v_norm": "head"},
    {"qk_norm": {"name": "projection", "after": True}, "scale": "by_layer", "gate": "element"},
    {
        "qk_norm": "l2",
        "score": {"name": "softmax", "plus_one": True},
    },
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "law",
    [
        "cache",
        "cache with padding",
        "select and rewind",
        "greedy",
        "kernels",
        "kernels in bf16",
        "gradients",
        "documents",
    ],
)
def test_laws(law, options):
    changes = {"model": "encoder_decoder"} if law == "greedy" else {"norm": "layer"}
    silent = (
        "only `reference` can compute it"
        if law.startswith("kernels") and "score" in options
        else None
    )
    assert (
        LAWS[law](tiny_config(attn={"name": "multi_head", **options}, position="rotary", **changes))
        == silent
    )


@pytest.mark.parametrize("options", [{}, *OPTIONS], ids=str)
@torch.no_grad()
def test_fused_projections_give_the_same(options):
    model = build_model(tiny_config(attn={"name": "multi_head", **options}), VOCAB)
    randomise(model)
    model.double().eval()
    expected = model(IDS)
    with torch.inference_mode(), with_fused_projections(model, 2):
        assert_close(model(IDS), expected)


def test_a_norm_after_rotation_ignores_a_shift_of_positions():
    assert (
        LAWS["shift"](
            tiny_config(
                attn={"name": "multi_head", "qk_norm": {"name": "l2", "after": True}},
                position="rotary",
            )
        )
        is None
    )


def test_a_norm_before_and_after_rotation_differ_only_by_its_weights():
    def logits(after):
        config = tiny_config(
            attn={"name": "multi_head", "qk_norm": {"name": "head", "after": after}},
            position="rotary",
        )
        case = Composition(config, "")
        model = case.model()
        for block in model.decoder.blocks:
            for norm in (block.attn.q_norm, block.attn.k_norm):
                norm.weight.data.fill_(1 if equal else norm.weight.data[0]).add_(
                    0 if equal else torch.arange(10).double()
                )
        with torch.no_grad():
            return case.logits(model, case.ids)

    equal = True
    assert_close(logits(False), logits(True))
    equal = False
    assert not torch.allclose(logits(False), logits(True))


HAS = (
    "It has: heads, kv_heads, head_dim, v_head_dim, bias, qk_norm, v_norm, clip, clip_normed, gate,"
    " scale, score, dropout, keys."
)
NORMS = "Known: each_head, head, key, l2, none, projection."
REFUSED = {
    "attn.v_head_dim=0": "attn.v_head_dim: must be at least 1 channel; got 0.",
    "attn.clip=0": "attn.clip: must be above 0; got 0. null is no limit.",
    "attn.clip=1 attn.clip_normed=true": (
        "attn.clip_normed: clips queries and keys after their norms, and there are none, or"
        " attn.clip=null; got true. Leave it out."
    ),
    "attn.scale=0": "attn.scale: must be above 0; got 0. null is head_dim^-0.5.",
    "attn.scale=by_lair": ("attn.scale: must be a number or by_layer or null; got 'by_lair'."),
    "attn.bias=[q,x]": (
        "attn.bias: must be true or false or a list of q or k or v or o; got ['q', 'x']. Try false."
    ),
    "attn.qk_norm_after=true": (
        "attn.qk_norm_after: attn 'multi_head' has no option 'qk_norm_after'. Did you mean"
        f" 'qk_norm'? {HAS}"
    ),
    "attn.qk_norm.after=true": (
        "attn.qk_norm.after: qk_norm 'none' has no option 'after'. It has no options. Try"
        " attn.qk_norm=head, attn.qk_norm=each_head, attn.qk_norm=projection, attn.qk_norm=l2 or"
        " attn.qk_norm=key."
    ),
    "attn.qk_norm=hed": f"attn.qk_norm: no qk_norm is called 'hed'. Did you mean 'head'? {NORMS}",
    "attn.qk_norm=1": f"attn.qk_norm: must name a qk_norm; got 1. {NORMS}",
    "attn.qk_norm.name=key attn.qk_norm.after=true position=xpos": (
        "attn.qk_norm.after: takes away the lengths of queries and keys, by which position 'xpos'"
        " distinguishes distances. Set attn.qk_norm.after=false, or position=rotary."
    ),
    "model.decoder.layout=[{attn:{value_residual:fixed}},ffn]": (
        "model.decoder.layout.attn.value_residual: attn 'multi_head' has no option"
        f" 'value_residual'. {HAS} Leave it out."
    ),
    "attn.qk_norm=projection norm=none": (
        "attn.qk_norm: takes the norm of model.decoder, and 'none' does nothing. "
        "Choose norm=rms or norm=layer there, or attn.qk_norm=false."
    ),
}


test_refused_configs = refusals(REFUSED)


def test_unit_vectors_need_no_norm_of_the_block():
    assert not faults(tiny_config(attn={"name": "multi_head", "qk_norm": "l2"}, norm="none"))


def test_weights_of_channels_after_a_rotation_break_the_law_of_shift():
    """The exemption is declared and needed: without it the law is broken."""
    for node in ({"name": "head", "after": True}, {"name": "l2", "after": True, "groups": 2}):
        attn = {"name": "multi_head", "qk_norm": node}
        assert "after a rotation" in LAWS["shift"](tiny_config(attn=attn, position="rotary"))
        with pytest.raises(LawBroken, match="a shift by 16 matters"):
            LAWS["shift"].__wrapped__(
                Composition(tiny_config(attn=attn, position="rotary"), "shift")
            )  # without the exemption
    free = {"name": "multi_head", "qk_norm": {"name": "l2", "after": True}}
    assert LAWS["shift"](tiny_config(attn=free, position="rotary")) is None
