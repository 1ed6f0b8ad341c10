"""attn=persistent_memory: learned keys and values next to those of the text."""

import pytest
import torch
from torch.testing import assert_close
from x_attention import DIM, HEAD_DIM, HEADS, LENGTH, ours, state_of, theirs, x

from tests.messages import messages
from xformer_kit import ConfigError, compose
from xformer_kit.kernel import Reference, expand_heads
from xformer_kit.laws import LAWS, faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition
from xformer_kit.mask import Causal
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import AttentionContext, Tokens
from xformer_kit.zoo.attn.persistent_memory import PersistentMemory

FUSED = PersistentMemory.fused
SLIDING = {"name": "sliding_window", "window": 4}


def run(layer, position="none"):
    tokens = Tokens(ids=torch.zeros(2, LENGTH, dtype=torch.long)).with_positions()
    place = POSITIONS.create(
        position, dim=DIM, heads=HEADS, head_dim=HEAD_DIM, max_len=LENGTH, layers=4
    )
    context = AttentionContext(
        tokens, tokens, Causal(), place.prepare(tokens, tokens), cross_layer_state={}
    )
    return layer(
        x(),
        None,
        context._replace(prepared=Reference().prepare(context, HEADS, False, torch.float64)),
    )


@pytest.mark.parametrize(
    "norm", [{}, {"qk_norm": True, "qk_norm_scale": HEAD_DIM**0.5}], ids=["plain", "unit"]
)
@torch.no_grad()
def test_the_layer_is_that_of_x_transformers(norm):
    layer = theirs(num_mem_kv=3, **norm)
    mine = ours("persistent_memory", count=3, **({"qk_norm": "l2"} if norm else {}))
    units = {"q_norm.weight": torch.ones(HEADS)} if norm else {}
    mine.load_state_dict(
        state_of(layer) | {"memory.k": layer.mem_k, "memory.v": layer.mem_v} | units
    )
    assert_close(run(mine), layer(x()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("after", [False, True])
@torch.no_grad()
def test_a_learned_key_meets_queries_that_are_not_turned(after):
    """Written out head by head: rotated products with the text, plain ones with the memory, one
    softmax over both.
    """
    mine = ours("persistent_memory", count=3, kv_heads=2, qk_norm={"name": "l2", "after": after})
    torch.manual_seed(0)
    for p in mine.parameters():
        p.copy_(torch.randn(p.shape) * 0.4)
    q, k, v = (
        m(x()).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for m in (mine.q, mine.k, mine.v)
    )
    tokens = Tokens(ids=torch.zeros(2, LENGTH, dtype=torch.long)).with_positions()
    place = POSITIONS.create(
        "rotary", dim=DIM, heads=HEADS, head_dim=HEAD_DIM, max_len=LENGTH, layers=4
    )
    turn = place.prepare(tokens, tokens)
    hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    heads = []
    for i in range(HEADS):
        weight, j = mine.q_norm.weight[i], i // 3
        unit = torch.nn.functional.normalize(q[:, i : i + 1], dim=-1) * weight
        key = torch.nn.functional.normalize(k[:, j : j + 1], dim=-1)
        text = (turn.rotate(unit, tokens) @ turn.rotate(key, tokens).mT)[:, 0].masked_fill(
            hidden, -torch.inf
        )
        learned = unit[:, 0] @ torch.nn.functional.normalize(mine.memory.k[j], dim=-1).T
        weights = (torch.cat([learned, text], -1) * mine.scale).softmax(-1)
        heads.append(weights[..., :3] @ mine.memory.v[j] + weights[..., 3:] @ v[:, j])
    assert_close(run(mine, "rotary"), mine.o(torch.cat(heads, -1)))


FACES = [
    {"mask": "causal", "position": "rotary"},
    {"mask": SLIDING, "position": "alibi"},
    {"mask": "causal", "position": {"name": "shaw", "span": 3}},
    {"mask": "causal", "position": {"name": "t5", "buckets": 6, "longest": 7}, "norm": "layer"},
]
CHECKED = ["cache", "cache with padding", "kernels", "gradients", "documents", "shift"]
ONLY = "only `reference` can compute it"


@pytest.mark.parametrize(
    "face", FACES, ids=lambda face: face["position"] if isinstance(face["position"], str) else ""
)
def test_laws(face):
    node = {
        "name": "persistent_memory",
        "count": 3,
        "qk_norm": "key",
        "v_head_dim": 7,
        "bias": True,
    }
    reasons = {law: LAWS[law](tiny_config(attn=node, **face)) for law in CHECKED}
    assert reasons == dict.fromkeys(CHECKED) | {"kernels": ONLY}


def test_that_a_row_with_nothing_to_see_sees_the_memory_is_said():
    assert "every query" in LAWS["nothing"](
        tiny_config(attn={"name": "persistent_memory", "count": 2})
    )
    assert LAWS["nothing"](tiny_config(attn="multi_head")) is None


def test_a_source_may_have_a_memory_beside_it():
    config = tiny_config(
        "encoder_decoder",
        attn={"name": "persistent_memory", "count": 2},
        decoder={"cross": {"position": "rotary"}},
    )
    assert LAWS["greedy"](config) is None


def test_a_token_that_sees_no_other_sees_the_memory():
    far = {"name": "all_of", "of": [{"name": "causal"}, {"name": "not", "of": SLIDING}]}
    case = Composition(
        tiny_config(attn={"name": "persistent_memory", "count": 2}, mask=far, layers=1), ""
    )
    attn, seen = case.model().decoder.blocks[0].attn, []
    model = case.model()
    model.decoder.blocks[0].attn.o.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        case.logits(model, case.ids)
    assert attn.memory.v.shape == (3, 2, 10)
    assert seen[0][:, 0].abs().max() > 0


def test_a_kernel_without_learned_keys_is_refused_and_never_the_composition():
    assert not faults(tiny_config(attn="persistent_memory", kernel="reference"))
    assert messages(faults(tiny_config(attn="persistent_memory", kernel="sdpa"))) == [
        "kernel: 'sdpa' cannot: attn 'persistent_memory' has no scores that sdpa could compute. Use"
        " kernel=auto or kernel=reference."
    ]


def written_out(attn, q, k, v, seen, bias):
    scores = q @ expand_heads(k, q.shape[1]).mT * attn.factor + (0 if bias is None else bias)
    hidden = torch.zeros((), dtype=torch.bool) if seen is None else ~seen
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ expand_heads(v, q.shape[1])


@pytest.mark.parametrize("score", [{}, {"score": {"name": "softmax", "softcap": 1e9}}])
@pytest.mark.parametrize("position", ["none", "rotary", "alibi"])
def test_the_fused_function_computes_what_the_equations_give(position, score, monkeypatch):
    config = tiny_config(attn={"name": "persistent_memory", "count": 3, **score}, position=position)
    case = Composition(config, "")
    fused = []
    monkeypatch.setattr(PersistentMemory, "fused", lambda *args: fused.append(1) or FUSED(*args))
    here = case.hidden(case.model(), case.ids)
    assert len(fused) == (0 if score else config["model"]["layers"])
    monkeypatch.setattr(PersistentMemory, "fused", written_out)
    assert_close(case.hidden(case.model(), case.ids), here)


@pytest.mark.parametrize("score", ["selective", "inverted"])
def test_a_score_that_passes_between_tokens_has_no_meaning_for_learned_keys(score):
    (said,) = messages(
        faults(
            tiny_config("encoder", attn={"name": "persistent_memory", "count": 2, "score": score})
        )
    )
    assert said == (
        f"attn.score: '{score}' compares tokens with each other, and a learned key has none. Choose"
        " attn.score=softmax."
    )


@pytest.mark.parametrize("law", ["causality", "cache", "gradients"])
def test_scores_of_the_layer_before_are_those_of_as_many_learned_keys(law):
    attn = {"name": "persistent_memory", "count": 3, "score": "residual"}
    variants = {"pattern": ["base", "less"], "variants": {"less": {"attn": {"count": 1}}}}
    assert LAWS[law](tiny_config(attn=attn, decoder=variants, layers=3)) is None


def test_faults_have_the_expected_sentences():
    with pytest.raises(ConfigError, match=r"^attn\.count: must be at least 1 key; got 0\.$"):
        compose(["attn=persistent_memory", "attn.count=0"])
