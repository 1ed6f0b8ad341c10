"""Every mask and every bias as a function of one pair of tokens: FlexAttention, step by step on a
CPU, equals the equations.
"""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from contexts import inputs, tokens
from refusals import refused
from torch import nn

from tests.messages import messages
from xformer_kit import ConfigError, build, compose
from xformer_kit.attention.score import SCORES
from xformer_kit.inspect.explain import explain
from xformer_kit.kernel import KERNELS, SDPAOrFlex
from xformer_kit.kernel.flex import FlexCall, _cached_block_mask
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.trials import option_variants
from xformer_kit.mask import MASKS, Causal
from xformer_kit.model.compiling import compile_blocks
from xformer_kit.position import POSITIONS
from xformer_kit.tensors.tokens import AttentionContext, Tokens
from xformer_kit.tensors.uncompiled import uncompiled

FLEX, PLAIN, HEADS = KERNELS["flex"](), KERNELS["reference"](), 4
SIGHT = {"document": [4, 7, 99], "real": [13, 9, -5]}
BIASES = [name for name in POSITIONS if "bias" in POSITIONS[name].enters]


def place(node: dict) -> nn.Module:
    made = POSITIONS.create(
        node, dim=12, heads=HEADS, head_dim=3, max_len=99, layers=1, stack="encoder"
    ).double()
    for number, weight in enumerate(made.parameters()):
        nn.init.normal_(weight, generator=torch.Generator().manual_seed(number))
    return made


def same(mask, position, score_fn=None, **sight) -> None:
    """Outputs of both kernels for a whole text, and where it is plain also for its last tokens
    after a cache.
    """
    key = tokens(13, **sight)._replace(
        prefix=torch.arange(13)[None] < torch.tensor([[3], [0], [5]])
    )
    biased = "bias" in position.enters
    with torch.no_grad():
        for query in (key,) if sight else (key, key.map(lambda field: field[:, -6:])):
            q, k, v = inputs(3, query.length, 13)
            context, found = AttentionContext(query, key, mask, position.prepare(query, key)), []
            for kernel in (FLEX, PLAIN):
                seen = context._replace(prepared=kernel.prepare(context, HEADS, biased, q.dtype))
                found.append(kernel(q, k, v, seen, 0.4, score_fn=score_fn))
            real = torch.ones(1) if query.real is None else query.real[:, None, :, None]
            torch.testing.assert_close(found[0] * real, found[1] * real)


@pytest.mark.parametrize("name", MASKS)
def test_every_mask(name):
    for node in option_variants("mask", name)[-2:]:
        node = {**node, "groups": [1, HEADS - 1]} if node.get("groups") else node
        for sight in ({}, SIGHT):
            same(MASKS.create(node), place({"name": "none"}), **sight)


@pytest.mark.parametrize("name", BIASES)
def test_every_bias(name):
    for node in option_variants("position", name)[-2:]:
        same(Causal(), place(node), **SIGHT)


def test_a_softcap_is_applied_between_bias_and_mask():
    cap = SCORES.create({"name": "softmax", "softcap": 0.7}, heads=HEADS)
    same(Causal(), place({"name": "alibi"}), score_fn=cap, **SIGHT)


@pytest.mark.extended
@pytest.mark.parametrize("position", ["none", "alibi"], ids=["mask", "bias"])
def test_it_is_a_part_of_the_graph_of_a_compiled_block(position):
    """Lightning replaces torch.compile, and torch cannot trace a call of what replaces it."""
    import lightning  # noqa: F401

    words = ["logger=none", "model.dim=24", "model.layers=2", "attn.heads=3", "kernel=flex"]
    model = build(compose([*words, f"position={position}"]), vocab_size=29).eval()
    ids = torch.randint(29, (3, 11), generator=torch.Generator().manual_seed(1))
    real = torch.arange(11) < torch.tensor([[11], [7], [4]])
    document = (torch.arange(11) > 5).long().expand(3, 11)
    batches = [Tokens(ids), Tokens(ids, real=real), Tokens(ids, document=document)]
    with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=8):
        expected = [model.hidden(batch)[0] for batch in batches]
        compile_blocks(model, backend="eager", fullgraph=True)
        for batch, hidden in zip(batches, expected, strict=True):
            shown = torch.ones(1) if batch.real is None else batch.real[..., None]
            torch.testing.assert_close(model.hidden(batch)[0] * shown, hidden * shown)


def test_block_masks_without_padding_are_cached():
    _cached_block_mask.cache_clear()
    for length in (13, 13, 9):
        context = AttentionContext(
            tokens(length), tokens(length), Causal(), place({"name": "none"})
        )
        context = context._replace(key=context.query)
        FLEX.prepare(context, HEADS, False, torch.float32)
    assert _cached_block_mask.cache_info()[:2] == (1, 2)


REFUSED = {
    "position=cope": "position 'cope' computes scores of its own, and flex computes them itself",
    "attn.score.name=entmax": (
        "attn.score is entmax, and flex computes softmax of scores that are changed one by one"
    ),
    "attn.score.sinks=true": (
        "attn.score is softmax with sinks, and flex computes softmax of scores that are changed one"
        " by one"
    ),
    "attn.dropout=0.1": "attn.dropout is 0.1, and flex drops no weights",
    "position=t5": (
        "position 't5' learns its bias, whose gradient flex adds up in no fixed order, so that a"
        " run would not resume bit for bit"
    ),
}


@pytest.mark.parametrize("word", REFUSED)
def test_unsupported_compositions_are_reported(word):
    assert refused(["logger=none", "kernel=flex", word]) == [
        f"kernel: 'flex' cannot: {REFUSED[word]}. Use kernel=auto or kernel=reference."
    ]


def test_on_a_cpu_it_computes_no_gradients():
    sentence = (
        "kernel: flex computes gradients only on CUDA, and this is a CPU; got flex. Use"
        " kernel=auto or kernel=sdpa."
    )
    assert messages(faults(tiny_config(kernel="flex"))) == [sentence]
    assert messages(faults(tiny_config(kernel="auto"))) == []
    context = AttentionContext(tokens(13), tokens(13), Causal(), place({"name": "none"}))
    context = context._replace(prepared=FLEX.prepare(context, HEADS, False, torch.float64))
    with pytest.raises(
        ConfigError,
        match=r"^kernel: 'flex' computes no gradients on a CPU\. Run it under torch\.no_grad",
    ):
        FLEX(*inputs(1, 13, 13), context, 0.4)


def test_a_model_by_name_runs_forward_and_generates():
    words = [
        "logger=none",
        "model.dim=24",
        "model.layers=2",
        "attn.heads=3",
        "mask=sliding_window",
        "mask.window=4",
    ]
    flex, plain = (
        build(compose([*words, f"kernel={name}"]), vocab_size=29).eval()
        for name in ("flex", "sdpa")
    )
    ids = torch.randint(29, (2, 11), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(flex(ids), plain(ids))
    assert (
        flex.generate(ids, max_new_tokens=5, temperature=0.0).tolist()
        == plain.generate(ids, max_new_tokens=5, temperature=0.0).tolist()
    )
    (item,) = explain(compose([*words, "kernel=flex"])).attentions
    assert item.kernel == "flex"


def test_with_cuda_auto_uses_flex_instead_of_a_table(monkeypatch):
    """The choice itself, on tensors that say they are there."""
    from xformer_kit.model.build import build_model

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    wide = ["logger=none", "model.dim=64", "attn.heads=2"]
    kinds = {}
    for word in ("mask=causal", "attn.score.name=entmax", "position=t5", "kernel=sdpa"):
        with torch.device("meta"):
            (kernel,) = build_model(compose([*wide, word]), 29).decoder.kernels.values()
        kinds[word] = type(kernel).__name__
    assert list(kinds.values()) == ["SDPAOrFlex", "Reference", "SDPA", "SDPA"]
    sdpa = KERNELS["sdpa"]()
    sdpa_or_flex = SDPAOrFlex(sdpa, FLEX)
    context = AttentionContext(
        tokens(13), tokens(13), MASKS.create({"name": "strided"}), place({"name": "none"})
    )
    assert not isinstance(
        sdpa_or_flex.prepare(context, HEADS, False, torch.float32), FlexCall
    )  # it stands on a CPU
    assert sdpa.needs_table(context, False) and not sdpa.needs_table(
        context._replace(mask=Causal()), False
    )
    assert sdpa.needs_table(context._replace(mask=Causal()), True)


def on_cuda(length=13, mask="strided"):
    slot = SimpleNamespace(device=torch.device("cuda"), shape=(1, length))
    there = Tokens(slot=slot, position=slot)
    return AttentionContext(there, there, MASKS.create({"name": mask}), place({"name": "none"}))


def sdpa_and_flex(monkeypatch):
    """Both kernels, whose `prepare` returns the kernel, and `prepare` of SDPAOrFlex."""
    sdpa, flex = KERNELS["sdpa"](), KERNELS["flex"]()
    for kernel in (sdpa, flex):
        monkeypatch.setattr(kernel, "prepare", lambda *_, kernel=kernel: kernel)
    return sdpa, flex, SDPAOrFlex(sdpa, flex).prepare


def test_flex_is_used_only_for_a_table_of_several_queries_that_is_not_float64(monkeypatch):
    sdpa, flex, prepare = sdpa_and_flex(monkeypatch)
    assert prepare(on_cuda(), HEADS, False, torch.bfloat16) is flex
    assert prepare(on_cuda(), HEADS, False, torch.float64) is sdpa
    assert prepare(on_cuda(length=2), HEADS, False, torch.float32) is flex
    assert prepare(on_cuda(length=1), HEADS, False, torch.float32) is sdpa
    assert prepare(on_cuda(mask="causal"), HEADS, False, torch.float32) is sdpa
    assert prepare(on_cuda(mask="causal"), HEADS, True, torch.float32) is flex


def test_without_compilation_sdpa_is_used_instead_of_flex(monkeypatch):
    """Uncompiled, flex computes all scores, and torch prints a warning."""
    sdpa, flex, prepare = sdpa_and_flex(monkeypatch)
    choose = partial(prepare, on_cuda(), HEADS, False, torch.float32)
    assert choose() is flex
    with uncompiled():
        assert choose() is sdpa
        with uncompiled():
            pass
        assert choose() is sdpa
    assert choose() is flex
