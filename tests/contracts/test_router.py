"""What a component reports is added to the loss, or comes back to it when the step is done."""

import torch
from compositions import VOCAB, batch, config_of, loss_of, model_of

from xformer_kit import build

CHOSEN = 2  # experts of a token


def test_the_loads_are_the_tokens_times_their_experts():
    model, tokens = model_of("router"), batch(padded=True)
    _, report = model.hidden(tokens)
    loads = {f"decoder.{depth}.ffn.load" for depth in range(3)}
    assert set(report) == {"loss"} | loads
    for name in loads:
        assert report[name].shape == (4,)
        assert report[name].sum() == CHOSEN * tokens.real.sum()
        assert not report[name].requires_grad


def test_the_loss_of_all_layers_is_added_and_reaches_every_gate():
    model, tokens = model_of("router"), batch()
    _, report = model.hidden(tokens)
    layers = [block.ffn for block in model.decoder.blocks]
    twice = model_of("router", "ffn.balance=0.02")
    torch.testing.assert_close(twice.hidden(tokens)[1]["loss"], 2 * report["loss"])
    report["loss"].backward()
    assert all(layer.gate.weight.grad.abs().sum() > 0 for layer in layers)
    assert all(
        layer.down.weight.grad is None for layer in layers[-1:]
    )  # after the last gate there is only the output


def test_even_shares_cost_the_factor_itself():
    """Equal probabilities: balance * experts * sum over experts of 1 / experts * f_i = balance, in
    each of 3 layers.
    """
    model = model_of("router")
    for block in model.decoder.blocks:
        torch.nn.init.zeros_(block.ffn.gate.weight)
    torch.testing.assert_close(model.hidden(batch())[1]["loss"].item(), 3 * 0.01)


def test_a_step_sees_the_sum_over_its_micro_batches():
    whole, components = model_of("router"), model_of("router")
    tokens = batch(4)
    _, report = loss_of(whole, tokens)
    whole.after_step(report)
    total: dict[str, torch.Tensor] = {}
    for row in range(4):
        _, said = loss_of(components, tokens.map(lambda field, row=row: field[row : row + 1]))
        total = {name: total.get(name, 0) + value for name, value in said.items()}
    components.after_step(total)
    for one, other in zip(whole.decoder.blocks, components.decoder.blocks, strict=True):
        assert one.ffn.bias.abs().sum() > 0
        assert one.ffn.bias.tolist() == other.ffn.bias.tolist()


def test_a_forward_pass_writes_nothing():
    model = model_of("router")
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    loss_of(model, batch())[0].backward()
    assert before
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())


def test_the_bias_changes_who_is_chosen_and_not_what_a_choice_weighs():
    model, tokens = model_of("router").eval(), batch()
    _, before = model.hidden(tokens)
    for block in model.decoder.blocks:
        block.ffn.bias[3] = 10.0
    _, after = model.hidden(tokens)
    assert before["decoder.0.ffn.load"][3] < 4 * 19
    assert after["decoder.0.ffn.load"][3] == 4 * 19  # every token now chooses it


def test_an_idle_expert_has_a_gradient_of_zero_and_the_others_have_theirs():
    model = model_of("router", "ffn.balance=0.0")
    for block in model.decoder.blocks:
        block.ffn.bias[3] = -10.0
    loss_of(model, batch())[0].backward()
    for block in model.decoder.blocks:
        assert block.ffn.up.weight.grad[3].abs().max() == 0
        assert all(block.ffn.up.weight.grad[expert].abs().sum() > 0 for expert in range(3))


def test_one_expert_is_an_mlp():
    model = model_of("router", "ffn.width=20", "ffn.experts=1", "ffn.chosen=1", "ffn.balance=0.0")
    dense = build(config_of("plain", "ffn=mlp"), VOCAB).double()
    state = {
        name: value[0] if value.ndim == 3 else value
        for name, value in model.state_dict().items()
        if "ffn.gate" not in name and "ffn.bias" not in name
    }
    dense.load_state_dict(state)
    ids = batch().ids
    torch.testing.assert_close(model(ids), dense(ids))
