"""Scores that depend on what tokens hold: the papers' equations written out, and DeBERTa's released
code.
"""

import math
import os

import pytest
import torch

from tests.content_scores import HEAD, HEADS, LENGTH, PAIRS, STACKS, attention, mixed
from tests.messages import messages
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.position import POSITIONS

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")


@STACKS
@torch.no_grad()
def test_shaw_is_its_equation(model):
    _, place, (q, k, v), out = attention({"name": "shaw", "span": 3}, model)
    scores = torch.zeros(HEADS, LENGTH, LENGTH, dtype=torch.float64)
    for i, j in PAIRS:
        row = place.weight[min(max(j - i, -3), 3) + 3]
        scores[:, i, j] = (q[:, i] * (k[:, j] + row)).sum(-1) * 0.4
    torch.testing.assert_close(out, mixed(scores, v, model == "decoder"))


@STACKS
@torch.no_grad()
def test_transformer_xl_is_its_equation(model):
    _, place, (q, k, v), out = attention({"name": "transformer_xl"}, model)
    rate = 10_000.0 ** (-torch.arange(0, 36, 2, dtype=torch.float64) / 36)
    scores = torch.zeros(HEADS, LENGTH, LENGTH, dtype=torch.float64)
    for i, j in PAIRS:
        wave = torch.cat([torch.sin((i - j) * rate), torch.cos((i - j) * rate)])
        far = (place.r.weight @ wave).view(HEADS, HEAD)
        scores[:, i, j] = (
            ((q[:, i] + place.u) * k[:, j]).sum(-1) + ((q[:, i] + place.v) * far).sum(-1)
        ) * 0.4
    torch.testing.assert_close(out, mixed(scores, v, model == "decoder"))


@pytest.mark.parametrize("terms", [("c2p", "p2c"), ("c2p",), ("p2c",)], ids="+".join)
@pytest.mark.parametrize(("buckets", "longest"), [(-1, 7), (6, 9), (6, 11), (8, 13)])
@torch.no_grad()
def test_disentangled_scores_are_those_of_deberta(buckets, longest, terms):
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    config = transformers.DebertaV2Config(
        hidden_size=36,
        num_attention_heads=HEADS,
        relative_attention=True,
        position_buckets=buckets,
        max_relative_positions=longest,
        max_position_embeddings=longest,
        share_att_key=True,
        pos_att_type=list(terms),
        attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
    )
    theirs = DisentangledSelfAttention(config).double().eval()
    rows = longest if buckets < 0 else buckets
    node = {
        "name": "disentangled",
        "buckets": rows,
        "longest": None if buckets < 0 else longest,
        "content_to_position": "c2p" in terms,
        "position_to_content": "p2c" in terms,
    }
    attn = {"name": "multi_head", "heads": HEADS, "kv_heads": HEADS, "head_dim": 6, "bias": True}
    case = Composition(tiny_config("encoder", attn=attn, position=node), "")
    model, held = case.model(), {}
    layer, place = model.encoder.blocks[0].attn, model.encoder.position["base"]
    for name, ours in (("query", layer.q), ("key", layer.k), ("value", layer.v)):
        getattr(theirs, f"{name}_proj").load_state_dict(ours.state_dict())
    layer.register_forward_hook(
        lambda module, args, kwargs, out: held.update(x=args[0]), with_kwargs=True
    )
    layer.o.register_forward_pre_hook(lambda module, args: held.update(out=args[0]))
    case.hidden(model, case.ids)
    seen = torch.ones(3, 1, LENGTH, LENGTH, dtype=torch.bool)
    expected = theirs(held["x"], seen, rel_embeddings=place.weight)[0]
    torch.testing.assert_close(
        held["out"], expected, rtol=1e-6, atol=1e-6
    )  # their scale is of fp32


@torch.no_grad()
def test_disentangled_sends_its_table_through_each_half_of_a_differential_attention():
    """Each of the two attentions is one of multi_head, with its own halves of the projections."""
    node = {"name": "disentangled", "buckets": 4, "longest": 9}
    case = Composition(
        tiny_config(
            attn={"name": "differential", "heads": 6, "kv_heads": 3, "head_dim": 5}, position=node
        ),
        "",
    )
    model, seen = case.model(), []
    layer, place = model.stack.blocks[0].attn, model.stack.position["base"]
    kernel = layer.kernel

    class Watched:
        def __call__(self, q, k, v, context, scale, dropout, scores):
            seen.append((q, k, context, scores))
            return kernel(q, k, v, context, scale, dropout, scores)

    layer.kernel = Watched()
    case.hidden(model, case.ids[:1])
    for half, (q, k, context, scores) in enumerate(seen):
        plain = {
            "name": "multi_head",
            "heads": 6,
            "kv_heads": 3,
            "head_dim": 5,
            "scale": layer.scale,
        }
        without_position = (
            Composition(tiny_config(attn=plain, position=node), "").model().stack.blocks[0].attn
        )
        for ours, theirs in ((without_position.q, layer.q), (without_position.k, layer.k)):
            ours.weight.copy_(
                theirs.weight.view(-1, 2, 5, theirs.in_features)[:, half].flatten(0, 1)
            )
        torch.testing.assert_close(scores, place.scores(without_position, q, k, context))


@torch.no_grad()
def test_disentangled_scores_of_latent_attention_are_those_of_its_decoupled_channels():
    node = {"name": "disentangled", "buckets": 4, "longest": 9}
    attn = {
        "name": "latent",
        "heads": 6,
        "head_dim": 5,
        "rope_head_dim": 4,
        "kv_rank": 7,
        "q_rank": 3,
        "bias": True,
    }
    case = Composition(tiny_config(attn=attn, position=node), "")
    model, held = case.model(), {}
    layer, place = model.stack.blocks[0].attn, model.stack.position["base"]
    layer.register_forward_hook(
        lambda module, args, kwargs, out: held.update(x=args[0]), with_kwargs=True
    )
    layer.o.register_forward_pre_hook(lambda module, args: held.update(out=args[0]))
    case.hidden(model, case.ids[:1])

    def projected(x):
        q = layer.q(layer.q_norm(layer.q_down(x))).unflatten(-1, (6, 9))
        latent = layer.kv_norm(layer.kv_down(x))
        return (
            q[..., :5],
            q[..., 5:],
            layer.k(latent).unflatten(-1, (6, 5)),
            layer.k_rope(x),
            latent,
        )

    q, asks, k, shared, latent = projected(held["x"][0])
    _, far_asks, _, far_shared, _ = projected(place.weight)
    v, rows = (
        layer.v(latent).unflatten(-1, (6, 5)).transpose(0, 1),
        place.row(torch.arange(-12, 13)),
    )
    scores = torch.zeros(6, LENGTH, LENGTH, dtype=torch.float64)
    for i, j in PAIRS:
        row = rows[i - j + 12]
        placed = asks[i] @ shared[j] + asks[i] @ far_shared[row] + far_asks[row] @ shared[j]
        scores[:, i, j] = ((q[i] * k[j]).sum(-1) + placed / math.sqrt(3)) * layer.scale
    torch.testing.assert_close(
        held["out"][0].unflatten(-1, (6, 5)).transpose(0, 1), mixed(scores, v, True)
    )


def test_log_buckets_are_those_of_deberta():
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    for buckets, longest in ((256, 512), (6, 11), (16, 4000)):
        place = POSITIONS.create(
            {"name": "disentangled", "buckets": buckets, "longest": longest}, dim=4
        )
        distance = torch.arange(-5000, 5000)
        theirs = make_log_bucket_position(distance, buckets, longest).long()
        assert torch.equal(place.row(distance), (theirs + buckets).clamp(0, 2 * buckets - 1))


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        ({"name": "shaw", "span": 0}, "position.span: must be at least 1 token; got 0."),
        (
            {"name": "disentangled", "buckets": 1, "longest": None},
            "position.buckets: must be at least 2 rows; got 1.",
        ),
        (
            {"name": "disentangled", "longest": 129},
            "position.longest: must be above 129; got 129. That is buckets / 2 + 1.",
        ),
        (
            {"name": "disentangled", "content_to_position": False, "position_to_content": False},
            (
                "position.position_to_content: one of the two terms must be true; got neither."
                " Choose position=none for none."
            ),
        ),
    ],
)
def test_a_score_that_cannot_be_is_refused(node, sentence):
    assert messages(faults(tiny_config(position=node))) == [sentence]


def test_the_fewest_buckets_and_a_row_for_each_distance_are_allowed():
    assert (
        messages(
            faults(tiny_config(position={"name": "disentangled", "buckets": 2, "longest": None}))
        )
        == []
    )
    assert messages(faults(tiny_config(position={"name": "disentangled", "longest": 130}))) == []


@pytest.mark.parametrize("term", ["content_to_position", "position_to_content"])
def test_one_of_the_two_terms_may_be_left_out(term):
    assert messages(faults(tiny_config(position={"name": "disentangled", term: False}))) == []


def test_default_longest_distance_is_that_of_deberta():
    place = POSITIONS.create({"name": "disentangled"}, dim=4)
    assert place.longest == transformers.DebertaV2Config().max_position_embeddings


def test_a_fused_kernel_cannot_compute_scores_by_content():
    (sentence,) = messages(faults(tiny_config(position="shaw", kernel="sdpa")))
    assert (
        sentence
        == "kernel: 'sdpa' cannot: position 'shaw' computes scores of its own, and sdpa computes"
        " them itself. Use kernel=auto or kernel=reference."
    )
