"""Recomputed weights times the values are the sums that the layer computes, for every attention."""

from contextlib import contextmanager

import pytest
import torch
from torch.nn import functional as F

from xformer_kit.attention import ATTENTIONS, SCORES, Attention
from xformer_kit.inspect import attention_weights
from xformer_kit.kernel import KERNELS, Kernel
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition, build_tiny_model
from xformer_kit.laws.trials import COMPANIONS
from xformer_kit.laws.variants import variants
from xformer_kit.registry import ConfigError
from xformer_kit.tensors.tokens import expand_heads

WITHOUT_WEIGHTS = {"fourier", "linear", "retention", "gated_delta", "performer", "short_conv"}
ATTENTION_VARIANTS = [
    (name, options)
    for name in ATTENTIONS
    for options in variants("attn", name)
    if name not in WITHOUT_WEIGHTS
]
ATTENTION_VARIANTS += [("multi_head", {"score": {"name": name}}) for name in SCORES]


def composition(name, options, two=False):
    """The first valid config of the attention with one of the companions."""
    for companion in COMPANIONS:
        config = tiny_config(**{**companion, "attn": {"name": name, **options}})
        if two == (companion.get("model") == "encoder_decoder") and not faults(config):
            return config
    return None


class KernelSpy(Kernel):
    def __init__(self, kernel, spied):
        self.kernel, self.heard, self.prepare, self.recur = (
            kernel,
            spied,
            kernel.prepare,
            kernel.recur,
        )

    def __call__(self, q, k, v, *rest):
        out = self.kernel(q, k, v, *rest)
        self.heard.append((expand_heads(v, q.shape[1]), out))
        return out


@contextmanager
def spying(model):
    """{name of an attention: values and sums of each call of its kernel, outputs of `v`, and inputs
    of `o`}.
    """
    spied, handles = {}, []
    for name, attn in model.named_modules():
        if not isinstance(attn, Attention):
            continue
        of_attn = spied[name] = {"calls": [], "v": [], "o": []}
        if hasattr(attn, "kernel"):
            attn.kernel = KernelSpy(attn.kernel, of_attn["calls"])
        if hasattr(attn, "o"):
            handles.append(
                attn.v.register_forward_hook(
                    lambda m, a, out, of_attn=of_attn: of_attn["v"].append(out)
                )
            )
            handles.append(
                attn.o.register_forward_pre_hook(
                    lambda m, args, of_attn=of_attn: of_attn["o"].append(args[0])
                )
            )
    yield spied
    for handle in handles:
        handle.remove()
    for name in spied:
        attn = model.get_submodule(name)
        if hasattr(attn, "kernel"):
            attn.kernel = attn.kernel.kernel


def heads(x, width):
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def summed(attn, spied, weights):
    """(weights times values, the sums that the layer computed)."""
    if len(spied["calls"]) == 1 and "linformer" not in type(attn).__module__:
        ((v, out),) = spied["calls"]
        return weights @ v, out
    if type(attn) is ATTENTIONS["differential"]:
        (v, _), _ = spied["calls"]
        out = F.rms_norm(weights @ v, v.shape[-1:], attn.weight, attn.eps) * attn.output_scale
        return out, heads(spied["o"][0], v.shape[-1])
    width = getattr(attn, "v_head_dim", attn.head_dim)
    return weights @ heads(spied["v"][0], width), heads(spied["o"][0], width)


def check(config, **inputs):
    case = Composition(config, "weights")
    model, two = case.model(), case.source is not None
    given = {"source": case.source, "target": case.ids} if two else {"ids": case.ids}
    given |= {
        ("target_real" if two and key == "real" else key): value for key, value in inputs.items()
    }
    with spying(model) as spied:
        out, ends = model(**given), []
        handle = model.head.register_forward_hook(lambda module, args, out: ends.append(out))
    found = attention_weights(model, **given)
    handle.remove()
    torch.testing.assert_close(ends[0], out)  # recording does not change the output
    assert set(found) == set(spied)  # layers share no module here
    for name, weights in found.items():
        attn, stack = model.get_submodule(name), model.get_submodule(name.partition(".")[0])
        got, made = summed(attn, spied[name], weights)
        if "real" in inputs and name.startswith(
            model.names[-1]
        ):  # outputs of padding queries are unused
            got, made = (x.transpose(1, 2)[inputs["real"]] for x in (got, made))
        torch.testing.assert_close(
            got, made, rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n} {m}"
        )
        groups = [group for group in stack.attention_groups if not group.cross]
        if not any(
            group.mask.sees_future or group.mask.sees_prefix for group in groups
        ) and not name.endswith("cross"):
            memory = weights.shape[-1] - weights.shape[-2]
            assert not weights[..., memory:].triu(1).any(), name
    return found


@pytest.mark.parametrize(("name", "options"), ATTENTION_VARIANTS, ids=lambda x: str(x)[:50])
@torch.no_grad()
def test_weights_times_values_are_what_the_layer_sums_up(name, options):
    config = composition(name, options)
    assert config is not None
    check(config)


@pytest.mark.parametrize("name", [name for name in ATTENTIONS if name not in WITHOUT_WEIGHTS])
@torch.no_grad()
def test_with_padding_and_across_two_stacks(name):
    real = torch.ones(3, 13, dtype=torch.bool)
    real[0, 8:], real[2, 3:] = False, False
    two = composition(name, {}, two=True)
    found = check(two or composition(name, {}), real=real)
    assert any(key.endswith("cross") for key in found) == (two is not None)
    for key, weights in found.items():
        if key.endswith("attn") and key.startswith("decoder"):
            weights = weights[..., weights.shape[-1] - weights.shape[-2] :]  # without learned keys
            assert not weights[0, ..., 8:].any() and not weights[2, ..., 3:].any()


KERNELS_OF_SCORES = [
    name
    for name, component in KERNELS.items()
    if "scores" in component.computes and name not in ("auto", "flex")
]


@pytest.mark.parametrize("kernel", KERNELS_OF_SCORES)
@torch.no_grad()
def test_rows_of_softmax_sum_to_one_whatever_the_kernel(kernel):
    config = composition("multi_head", {})
    config["kernel"] = {"name": kernel}
    case = Composition(config, "weights")
    found = attention_weights(case.model(torch.bfloat16), case.ids)
    assert [*found] == ["decoder.0.attn", "decoder.1.attn"]
    for weights in found.values():
        assert weights.shape == (3, 6, 13, 13) and weights.dtype == torch.float32
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 6, 13))
        assert (weights >= 0).all() and (weights.tril() > 0).sum() == 3 * 6 * 13 * 14 // 2


@torch.no_grad()
def test_weights_are_those_of_torch():
    """A model whose attention is torch.nn.MultiheadAttention, with its weights copied."""
    model = build_tiny_model(
        tiny_config(
            model="encoder",
            attn={"name": "multi_head", "heads": 3, "kv_heads": 3, "head_dim": 12, "bias": True},
            position="none",
            mask="full",
            layers=1,
        )
    )
    attn, torch_attn, read = (
        model.encoder.blocks[0].attn,
        torch.nn.MultiheadAttention(36, 3, batch_first=True),
        [],
    )
    torch_attn.in_proj_weight.copy_(torch.cat([attn.q.weight, attn.k.weight, attn.v.weight]))
    torch_attn.in_proj_bias.copy_(torch.cat([attn.q.bias, attn.k.bias, attn.v.bias]))
    real = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    handle = attn.register_forward_pre_hook(lambda module, args: read.append(args[0]))
    (of_attn,) = attention_weights(model, torch.arange(14).view(2, 7) % 11, real=real).values()
    handle.remove()
    _, expected = torch_attn(
        *[read[0]] * 3, key_padding_mask=~real, need_weights=True, average_attn_weights=False
    )
    torch.testing.assert_close(of_attn, expected)


def tiny_model(**changes):
    return build_tiny_model(tiny_config(**changes))


IDS = torch.arange(10).view(2, 5)


def test_layers_and_heads_are_chosen():
    model = tiny_model(layers=3)
    all_weights = attention_weights(model, IDS)
    chosen = attention_weights(model, IDS, layers=[2, "decoder.0.attn"], heads=[2, 0])
    assert [*chosen] == ["decoder.0.attn", "decoder.2.attn"]
    for name, weights in chosen.items():
        assert torch.equal(weights, all_weights[name][:, [2, 0]])


def test_layers_that_share_a_block_have_weights_of_their_own():
    model = tiny_model(unique_layers=1)
    first, second = attention_weights(model, IDS).values()
    assert not torch.equal(first, second)
    (second_only,) = attention_weights(model, IDS, layers=[1]).values()
    assert torch.equal(second_only, second)


@torch.no_grad()
def test_cross_layer_state_does_not_change():
    attn = {"name": "multi_head", "score": {"name": "residual"}}
    check(tiny_config(layers=4, attn=attn, extra={"value_residual": {"mix": "learned"}}))


def test_there_is_no_dropout_and_the_model_does_not_change():
    model = tiny_model(attn={"name": "multi_head", "dropout": 0.5}, dropout=0.5).train()
    kernel = model.decoder.blocks[0].attn.kernel
    first, second = (attention_weights(model, IDS)["decoder.1.attn"] for _ in range(2))
    assert torch.equal(first, second) and model.training and model.decoder.blocks[0].attn.training
    assert model.decoder.blocks[0].attn.kernel is kernel
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def fault_of(changes=None, **options):
    with pytest.raises(ConfigError) as caught:
        attention_weights(tiny_model(**(changes or {})), IDS, **options)
    return str(caught.value)


@pytest.mark.parametrize("name", sorted(WITHOUT_WEIGHTS))
def test_a_fault_of_an_attention_without_weights_has_the_reason(name):
    config = composition(name, {})
    with pytest.raises(
        ConfigError,
        match=rf"^\w+\.0\.attn, \w+\.1\.attn: attn '{name}' .* Choose other layers, or attn=",
    ):
        check(config)


def test_attentions_without_weights_are_left_out_if_others_have_weights():
    changes = {
        "position": "none",
        "decoder": {"pattern": ["base", "other"], "variants": {"other": {"attn": "linear"}}},
    }
    assert [*attention_weights(tiny_model(**changes), IDS)] == ["decoder.0.attn"]
    assert fault_of(changes, layers=[0, 1]).startswith(
        "decoder.1.attn: attn 'linear' keeps a state"
    )


def test_faults():
    assert fault_of(layers=[7]) == "layers: no attention is called '7'. Known: 0, 1."
    assert (
        fault_of(layers=["decoder.0.atn"])
        == "layers: no attention is called 'decoder.0.atn'. Did you mean 'decoder.0.attn'? Known:"
        " decoder.0.attn, decoder.1.attn."
    )
    assert fault_of(heads=[6]) == "heads: decoder.0.attn has heads 0 to 5; got 6."
