"""Each contract component computes the equation of its paper."""

import math
from functools import partial

import pytest
import torch
from compositions import LENGTH, TINY, VOCAB, batch, config_of, loss_of, model_of
from refusals import refused

from xformer_kit import ConfigError, build
from xformer_kit.model.block import BlockInput
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import Tokens

CAUSAL = torch.ones(LENGTH, LENGTH).tril().bool()


def heads(module, x, count=4):
    return module(x).unflatten(-1, (count, -1)).transpose(1, 2)


def first_attention(model, ids):
    """The first attention, what it reads and what it gives."""
    held = {}
    attn = model.decoder.blocks[0].attn

    def keep(module, args, kwargs, output):
        held.update(x=args[0], out=output)

    handle = attn.register_forward_hook(keep, with_kwargs=True)
    model(ids)
    handle.remove()
    return attn, held["x"], held["out"]


@torch.no_grad()
def test_latent_attention_is_attention_over_keys_and_values_read_from_the_latent():
    model = model_of("latent", "position=none")
    attn, x, out = first_attention(model, batch().ids)
    latent = attn.norm(attn.down(x))
    shared = attn.r(x)[:, None].expand(-1, 4, -1, -1)
    k, v = torch.cat([heads(attn.k, latent), shared], -1), heads(attn.v, latent)
    scores = heads(attn.q, x) @ k.mT / math.sqrt(6 + 4)
    weights = scores.masked_fill(~CAUSAL, -math.inf).softmax(-1)
    torch.testing.assert_close(out, attn.o((weights @ v).transpose(1, 2).flatten(2)))


@torch.no_grad()
def test_linear_attention_is_a_weighted_mean_by_products_of_features():
    model = model_of("linear")
    attn, x, out = first_attention(model, batch().ids)
    q, k, v = heads(attn.q, x), heads(attn.k, x), heads(attn.v, x)
    weights = ((torch.nn.functional.elu(q) + 1) @ (torch.nn.functional.elu(k) + 1).mT) * CAUSAL
    weights = weights / weights.sum(-1, keepdim=True)
    torch.testing.assert_close(out, attn.o((weights @ v).transpose(1, 2).flatten(2)))


@torch.no_grad()
def test_disentangled_scores_are_the_three_terms_of_the_paper():
    model = model_of("disentangled", "attn.kv_heads=4")
    attn, x, out = first_attention(model, batch().ids)
    table = model.decoder.position["base"].weight  # (12, 24): distances -6 .. 5
    q, k, v = heads(attn.q, x), heads(attn.k, x), heads(attn.v, x)
    far_q, far_k = heads(attn.q, table[None])[0], heads(attn.k, table[None])[0]
    scores = torch.zeros(4, 4, LENGTH, LENGTH, dtype=torch.float64)
    for i in range(LENGTH):
        for j in range(i + 1):
            there, back = min(max(i - j + 6, 0), 11), min(max(j - i + 6, 0), 11)
            terms = (
                q[:, :, i] * k[:, :, j] + q[:, :, i] * far_k[:, there] + k[:, :, j] * far_q[:, back]
            )
            scores[:, :, i, j] = terms.sum(-1) / math.sqrt(3 * 6)
    weights = scores.masked_fill(~CAUSAL, -math.inf).softmax(-1)
    torch.testing.assert_close(out, attn.o((weights @ v).transpose(1, 2).flatten(2)))


@torch.no_grad()
def test_t5_buckets_of_given_distances():
    """8 buckets up to 16 tokens: 0 to 3 exactly, then 4-5, 6-7, 8-11, 12 and more; the future
    counts as 0.
    """
    place = POSITIONS["test_t5"](heads=1, buckets=8, longest=16)
    place.weight.copy_(torch.arange(8.0)[:, None])
    query, key = Tokens(position=torch.tensor([[20]])), Tokens(position=torch.arange(23)[None])
    bias = place.bias(query.as_query(), key.as_key(), torch.zeros(1, 1, 1, 1, dtype=torch.long))
    expected = [7] * 9 + [6] * 4 + [5] * 2 + [4] * 2 + [3, 2, 1, 0, 0, 0]
    assert bias.flatten().int().tolist() == expected


def test_the_stack_owns_one_t5_table_and_computes_it_once():
    model, calls = model_of("t5"), []
    names = [name for name, _ in model.named_parameters() if "position" in name]
    assert names == ["decoder.position.base.weight"]
    place = model.decoder.position["base"]
    bias = place.bias
    place.bias = lambda *given: calls.append(1) or bias(*given)
    model.hidden(batch())
    assert len(calls) == 1


@pytest.mark.parametrize("padded", [False, True])
def test_gradients_reach_the_t5_table_alike_through_both_kernels(padded):
    gradients = {}
    for kernel in ("sdpa", "reference"):
        model = model_of("t5", f"kernel={kernel}")
        loss_of(model, batch(padded=padded))[0].backward()
        gradients[kernel] = model.decoder.position["base"].weight.grad
    assert gradients["sdpa"].abs().min() > 0
    torch.testing.assert_close(gradients["sdpa"], gradients["reference"])


def test_a_variant_with_another_table_has_its_own_next_to_that_of_the_stack():
    model = model_of(
        "t5",
        "model.decoder.pattern=[base,short]",
        "model.decoder.variants.short.position.buckets=4",
    )
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if "position" in name}
    assert shapes == {
        "decoder.position.base.weight": (8, 4),
        "decoder.position.other_1.weight": (4, 4),
    }


@torch.no_grad()
def test_residual_carries_two_streams_and_joins_them_at_the_end():
    model, tokens = model_of("residual"), batch().with_positions()
    stack = model.decoder
    x = model.embed(tokens.ids)
    contexts, post, pre = stack.contexts(tokens, tokens, (tokens, None), x.dtype), x, x
    for block in stack.blocks:
        for name, placement in block.placement.items():
            out = block.attn(post, None, contexts[0]) if name == "attn" else block.ffn(post)[0]
            post, pre = placement.norm(post + out), pre + out
    torch.testing.assert_close(model.hidden(tokens)[0], post + stack.norm(pre))
    bare = model_of("residual", "model.final_norm=false")
    torch.testing.assert_close(bare.hidden(tokens)[0], post + pre)


def test_values_of_the_first_layer_reach_the_others_and_get_gradients_from_them():
    model, ids = model_of("first_values").eval(), batch().ids
    whole = model(ids)
    seen = []
    for block in model.decoder.blocks:
        kernel = block.attn.kernel
        block.attn.kernel = partial(
            lambda run, q, k, v, *rest: seen.append(v) or run(q, k, v, *rest), kernel
        )
    torch.testing.assert_close(model(ids), whole)
    (gradient,) = torch.autograd.grad(
        seen[2].sum(), model.decoder.blocks[0].attn.v.weight, retain_graph=True
    )
    assert gradient.abs().sum() > 0
    again = model(ids)  # nothing is kept from one forward pass to the next
    torch.testing.assert_close(again, whole)


@torch.no_grad()
def test_a_block_does_not_change_the_memo_that_it_gets():
    """So a block that is computed again, for its activations, reads what it read before."""
    model, tokens = model_of("first_values"), batch().with_positions()
    x, block, given = model.embed(tokens.ids), model.decoder.blocks[0], {}
    (context,) = model.decoder.contexts(tokens, tokens, (tokens, None), x.dtype)
    _, _, left = block((x,), BlockInput({"attn": context}, tokens, cross_layer_state=given))
    assert given == {}
    assert list(left) == ["values"]


FAULTS = {
    "attn=test_linear position=test_t5": (
        "attn: attn 'test_linear' never forms the scores that position 'test_t5' works on. "
        "Use position=none, learned or sinusoidal."
    ),
    "attn=test_linear position=none mask=sliding_window": (
        "attn: attn 'test_linear' sums over the whole past, and mask 'sliding_window' hides some of"
        " it or adds to it. Use mask=causal."
    ),
    "attn=test_linear position=none kernel=sdpa": (
        "attn: attn 'test_linear' forms no scores that kernel 'sdpa' could compute. Use"
        " kernel=auto."
    ),
    "attn=test_latent position=test_disentangled": (
        "position: position 'test_disentangled' sends its table through the queries' and keys'"
        " projections, and attn 'test_latent' has none of that kind. Use attn=multi_head."
    ),
    "position=test_disentangled kernel=sdpa": (
        "kernel: 'sdpa' cannot: position 'test_disentangled' computes scores of its own, and sdpa"
        " computes them itself. Use kernel=auto or kernel=reference."
    ),
    "attn=test_latent attn.turned=3": (
        "position: rotary turns pairs of channels, so attn.turned must be even; got 3. Try"
        " attn.turned=4, or position=none."
    ),
    "attn=test_latent attn.rank=0": "attn.rank: must be at least 1 channel; got 0.",
    "attn=test_latent attn.heads=5": (
        "attn.heads: must divide model.dim; got 5 and 24. Try 2, 3, 4 or 6, or set attn.head_dim."
    ),
    "attn=test_linear attn.clip=2.0 position=none": (
        "attn.clip: attn 'test_linear' has no option 'clip'. It has: heads. Try attn=multi_head,"
        " attn=exclusive, attn=laser or attn=persistent_memory."
    ),
    "ffn=test_router ffn.chosen=5": "ffn.chosen: must be at most ffn.experts; got 5 and 4. Try 4.",
    "ffn=test_router ffn.exprts=5": (
        "ffn.exprts: ffn 'test_router' has no option 'exprts'. Did you mean 'experts'? "
        "It has: experts, chosen, width, balance, rate."
    ),
    "position=test_t5 position.longest=4": (
        "position.longest: must be above half the buckets; got 4 and 8."
    ),
    (
        "placement=test_residual model.decoder.pattern=[base,a] "
        "model.decoder.variants.a.placement=pre"
    ): (
        "model.decoder.variants.a.placement: 'pre' carries 1 stream and the stack's 'test_residual'"
        " 2 streams; a stack has one kind of residual stream. Leave it out, or give the stack the"
        " same at placement."
    ),
    "model.decoder.pattern=[base,a] model.decoder.variants.a.attn.name=test_linear": (
        "model.decoder.variants.a.attn: attn 'test_linear' never forms the scores that position"
        " 'rotary' works on. Use position=none, learned or sinusoidal."
    ),
}


@pytest.mark.parametrize("overrides", FAULTS)
def test_a_composition_that_cannot_be_is_refused_by_one_sentence(overrides):
    words = overrides.split()
    kept = [
        word for word in TINY if word.partition("=")[0] not in {w.partition("=")[0] for w in words}
    ]
    assert refused([*kept, *words]) == [FAULTS[overrides]]


def test_a_law_that_a_component_breaks_is_refused_where_it_would_be_needed():
    model, ids = model_of("linear"), batch().ids
    document = torch.arange(LENGTH)[None].expand(len(ids), -1) // 10
    sentence = (
        r"^document: attn 'test_linear' breaks the law of documents "
        r"\(a sum over the past does not tell documents apart\)\. Give one document per row, or"
        r" choose another component\.$"
    )
    with pytest.raises(ConfigError, match=sentence):
        model(ids, document=document)
    model_of("latent")(ids, document=document)  # others can


def test_another_attention_does_not_change_initial_values_of_other_parameters():
    plain, latent = (build(config_of(name), VOCAB).state_dict() for name in ("plain", "latent"))
    same = [name for name in plain if name in latent and ".attn." not in name]
    assert len(same) > 10
    assert all(torch.equal(plain[name], latent[name]) for name in same)
