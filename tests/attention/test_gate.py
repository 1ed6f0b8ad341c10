"""attn.gate: each by its equation and against x-transformers with the same weights, and under the
laws.
"""

import pytest
import torch
from refusals import refused
from torch.nn import functional as F
from torch.testing import assert_close
from x_attention import HEADS, ours, run, state_of, theirs, x

from xformer_kit import build, compose
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.model.build import build_model


def low(module, where):
    return {
        f"gate.{where}.reduce.weight": module.down.weight,
        f"gate.{where}.expand.weight": module.up.weight,
    }


def gate_values():
    layer = theirs(gate_values=True)
    return layer, {"name": "element"}, {"gate.input.weight": layer.to_v_gate.weight}


def gate_values_headwise():
    layer = theirs(gate_values=True, gate_values_headwise=True)
    return layer, {"name": "head"}, {"gate.input.weight": layer.to_v_gate.weight}


def gate_value_heads():
    layer = theirs(gate_value_heads=True)
    there = layer.to_v_head_gate
    return (
        layer,
        {"name": "head", "bias": 10.0},
        {"gate.input.weight": there.weight, "gate.bias": there.bias},
    )


def gate_values_rank():
    layer = theirs(gate_values=True, gate_values_rank=5, low_rank_silu_gates=False)
    return layer, {"name": "element", "rank": 5}, low(layer.to_v_gate, "input")


def low_rank_silu_gates():
    layer = theirs(gate_values=True, gate_values_rank=5)
    return layer, {"name": "element", "rank": 5, "middle": "silu"}, low(layer.to_v_gate, "input")


def swiglu_values():
    layer = theirs(gate_values=True, swiglu_values=True)
    return (
        layer,
        {"name": "element", "activation": "silu"},
        {"gate.input.weight": layer.to_v_gate.weight},
    )


def output_gate():
    layer = theirs(output_gate=True)
    return (
        layer,
        {"name": "element", "of": "output"},
        {"gate.output.weight": layer.to_output_gate.weight},
    )


def output_gate_headwise():
    layer = theirs(output_gate=True, output_gate_headwise=True)
    return (
        layer,
        {"name": "head", "of": "output"},
        {"gate.output.weight": layer.to_output_gate.weight},
    )


def hybrid_gate():
    layer = theirs(gate_values=True, output_gate=True, gate_values_rank=4, output_gate_rank=4)
    gate = {"name": "element", "of": "both", "rank": 4, "middle": "silu"}
    return layer, gate, low(layer.to_v_gate, "input") | low(layer.to_output_gate, "output")


def head_scale():
    layer = theirs(head_scale=True)
    return layer, {"name": "constant"}, {"gate.weight": layer.head_scale_params.flatten()}


def on_attn():
    layer = theirs(on_attn=True)
    y, gate = layer.to_out[0].weight.chunk(2)
    return layer, {"name": "projected"}, {"o.weight": y, "gate.output.weight": gate}


PEERS = [
    gate_values,
    gate_values_headwise,
    gate_value_heads,
    gate_values_rank,
    low_rank_silu_gates,
    swiglu_values,
    output_gate,
    output_gate_headwise,
    hybrid_gate,
    head_scale,
    on_attn,
]


@pytest.mark.parametrize("pair", PEERS, ids=lambda pair: pair.__name__)
@torch.no_grad()
def test_the_layer_is_that_of_x_transformers(pair):
    layer, gate, state = pair()
    mine = ours(gate=gate)
    mine.load_state_dict(state_of(layer) | state)
    assert_close(run(mine, x()), layer(x()), rtol=1e-5, atol=1e-6)  # their softmax is in float32


def seen_by(model):
    attn, seen = model.decoder.blocks[0].attn, []
    hooks = [
        attn.register_forward_hook(lambda _, args, out: seen.extend((args[0], out))),
        attn.o.register_forward_pre_hook(lambda _, args: seen.append(args[0])),
    ]
    with torch.no_grad():
        model(torch.arange(10)[None])
    for hook in hooks:
        hook.remove()
    gathered, given, out = seen
    return attn, given, gathered, out


def test_attention_on_attention_of_both_is_gated_by_input_and_output():
    model = build_model(
        tiny_config(attn={"name": "multi_head", "gate": {"name": "projected", "of": "both"}}), 37
    ).double()
    attn, given, gathered, out = seen_by(model)
    assert_close(
        out, attn.o(gathered) * (attn.gate.input(given) + attn.gate.output(gathered)).sigmoid()
    )


def test_a_bias_starts_from_its_option_and_matrices_from_the_initialisation():
    gate = {"name": "element", "bias": 2.5, "rank": 3}
    state = (
        build(tiny_config(attn={"name": "multi_head", "gate": gate}), 37)
        .decoder.blocks[0]
        .attn.state_dict()
    )
    assert state["gate.bias"].eq(2.5).all()
    assert state["gate.input.reduce.weight"].shape == (3, 36)
    assert state["gate.input.expand.weight"].std() < 0.1  # drawn, not as torch begins


def test_a_gate_of_silu_is_a_glu():
    gate = ours(gate={"name": "element", "activation": "silu"}).gate
    out = torch.randn(1, 3, HEADS, 10).double()
    given = x()[:1, :3]
    assert_close(
        gate.before(given, out).flatten(2), F.silu(given @ gate.input.weight.t()) * out.flatten(2)
    )


@pytest.mark.parametrize(
    "words", [["attn.gate=element"], ["attn.gate.name=element"], ["attn.gate={name: element}"]]
)
def test_a_gate_may_be_set_by_its_name(words):
    model = build(compose(["logger=none", *words, "model.layers=1"]), 7)
    assert type(model.decoder.blocks[0].attn.gate).__name__ == "ElementGate"


@pytest.mark.parametrize(
    "law", ["cache", "cache with padding", "greedy", "kernels", "gradients", "documents"]
)
def test_laws(law):
    gate = {"name": "projected", "of": "both", "rank": 4, "activation": "silu", "bias": 0.5}
    changes = {"model": "encoder_decoder"} if law == "greedy" else {"norm": "layer"}
    assert LAWS[law](tiny_config(attn={"name": "multi_head", "gate": gate}, **changes)) is None


KNOWN = "Known: constant, element, head, none, projected."
REFUSED = {
    "attn.gate=heads": f"attn.gate: no gate is called 'heads'. Did you mean 'head'? {KNOWN}",
    "attn.gate={rank: 4}": (
        "attn.gate.rank: gate 'none' has no option 'rank'. It has no options. Try attn.gate=head,"
        " attn.gate=element or attn.gate=projected."
    ),
    "attn.gate.name=element attn.gate.rank=0": (
        "attn.gate.rank: must be at least 1 channel; got 0."
    ),
    "attn.gate.name=element attn.gate.middle=silu": (
        "attn.gate.middle: is applied between the two matrices of a gate of low rank, and without a"
        " rank there is only one; got 'silu'. Try attn.gate.rank=16, or none."
    ),
    "attn.gate.name=head attn.gate.activation=silo": (
        "attn.gate.activation: no choice is called 'silo'. Did you mean 'silu'? Known: sigmoid,"
        " silu."
    ),
    "attn.gate=elemant attn.gate.rank=4": (
        f"attn.gate: no gate is called 'elemant'. Did you mean 'element'? {KNOWN}"
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_faults_have_the_expected_sentences(words):
    assert refused([words] if "{" in words else words) == [REFUSED[words]]
