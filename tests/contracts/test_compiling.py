"""Blocks and the loss compile whole, change nothing, and share their graphs."""

import pickle
from copy import deepcopy

import pytest
import torch
from compositions import ALL, LENGTH, TWO_STACKS, VOCAB, batch, loss_of, model_of
from torch import _dynamo
from torch._dynamo.testing import CompileCounterWithBackend

from xformer_kit.model import loss
from xformer_kit.model.compiling import GRAPHS, compile_blocks

pytestmark = pytest.mark.extended

# Graphs of blocks in a training step: one, and where the first block differs, or there is another
# stack, two.
KINDS = {"mixed": 2, "first_values": 2, "two_stacks": 2, "two_apart": 2}
LOSSES = {"future": 2}  # graphs of losses: another one for several predictions


@pytest.fixture(autouse=True)
def fresh():
    """No graph of another test, and torch's own limit again after each."""
    _dynamo.reset()
    with _dynamo.config.patch(recompile_limit=8):
        yield
    _dynamo.reset()


def compiled(name: str, *more: str, **options):
    model, counter = model_of(name, *more), CompileCounterWithBackend("aot_eager")
    compile_blocks(model, fullgraph=True, **({"backend": counter} | options))
    return model, counter


def step(model, tokens):
    model.zero_grad()
    nats, report = loss_of(model, tokens)
    nats.backward()
    return nats, report, {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("name", ALL | TWO_STACKS)
def test_the_same_step_in_one_graph_for_all_layers_of_a_kind(name):
    (model, counter), plain = compiled(name, "model.layers=4"), model_of(name, "model.layers=4")
    for seed in range(2):
        tokens = batch(seed=seed)
        torch.testing.assert_close(step(model, tokens), step(plain, tokens), rtol=1e-10, atol=1e-12)
        assert counter.frame_count == KINDS.get(name, 1) + LOSSES.get(name, 1)


@pytest.fixture(params=["at once", "chunks"])
def way(request, monkeypatch):
    """Both ways of computing the loss; three chunks of 24 of the 72 tokens."""
    if request.param == "chunks":
        monkeypatch.setattr(loss, "MAX_UNCHUNKED", 0)
        monkeypatch.setattr(loss, "CHUNK", 24 * VOCAB)


@pytest.mark.parametrize("name", ["plain", "untied"])
def test_both_ways_of_the_loss_compile_as_one_graph(way, name):
    """Next to that of the blocks, and with them."""
    (model, counter), plain = compiled(name), model_of(name)
    tokens = batch()
    torch.testing.assert_close(step(model, tokens), step(plain, tokens), rtol=1e-12, atol=1e-12)
    assert counter.frame_count == 2
    counter = CompileCounterWithBackend("eager")
    torch.compile(lambda: loss_of(plain, tokens)[0], backend=counter, fullgraph=True)()
    assert counter.frame_count == 1


def test_a_copy_is_not_compiled():
    model, _ = compiled("plain")
    assert deepcopy(model).head.loss_functions is loss.UNCOMPILED
    pickle.dumps(model.head)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mixed", ["model.layers=4"]),
        ("two_stacks", ["model.layers=2"]),
        ("plain", ["model.layers=3", "extra.reinject.way=factor", "extra.unet.way=matrix"]),
        ("plain", ["model.layers=2", "extra.stochastic_depth.rate=0.3", "extra.token_shift={}"]),
        ("plain", ["model.layers=2", "placement=dense_former", "extra.deep_embed={}"]),
    ],
)
def test_the_whole_model_compiles_without_a_break(name, options):
    """Several layers, in one graph; the law `graph` is about one of each kind."""
    model, counter = model_of(name, *options), CompileCounterWithBackend("eager")
    tokens = batch()
    torch.compile(lambda: loss_of(model, tokens)[0], backend=counter, fullgraph=True)()
    assert counter.frame_count == 1


@pytest.mark.parametrize("name", ["latent", "linear", "mixed"])
def test_decoding_takes_a_few_graphs_and_none_for_each_length(name):
    (model, counter), plain = compiled(name), model_of(name)
    ids, counts = batch(2, 5).ids, []
    past = model.eval().cache(2, LENGTH)
    with torch.no_grad():
        chosen = model(ids, cache=past)[:, -1:].argmax(-1)
        for _ in range(12):
            ids = torch.cat([ids, chosen], 1)
            counts.append(counter.frame_count)
            chosen = model(chosen, cache=past)[:, -1:].argmax(-1)
    assert ids.tolist() == plain.generate(ids[:, :5], max_new_tokens=12, temperature=0.0).tolist()
    assert counts[3:] == [counts[3]] * 9
    assert counts[3] <= 4 * KINDS.get(name, 1)


@pytest.mark.slow
def test_a_model_of_several_kinds_may_train_pad_validate_and_decode():
    """Together that is more than torch's own limit of 8 graphs for a function, which all kinds of
    blocks share.
    """
    model, counter = compiled("mixed", "model.layers=6")
    for padded in (False, True):
        step(model, batch(padded=padded))
        with torch.no_grad():
            loss_of(model.eval(), batch(3, padded=padded))
        model.generate(batch(2, 5).ids, max_new_tokens=6, real=batch(2, 5, padded).real)
        model.train()
    assert 8 < counter.frame_count <= 2 * GRAPHS


@pytest.mark.slow
def test_the_default_compiler_computes_the_same():
    (model, _), plain = compiled("t5", backend="inductor"), model_of("t5")
    tokens = batch()
    torch.testing.assert_close(step(model, tokens), step(plain, tokens), rtol=1e-9, atol=1e-11)


def test_checkpointed_blocks_compile_to_the_same():
    from test_checkpointing import by_wrapper

    (model, _), plain = compiled("router"), model_of("router")
    by_wrapper(model)
    tokens = batch()
    nats, report, gradients = step(model, tokens)
    expected = step(plain, tokens)
    torch.testing.assert_close((nats, report), expected[:2], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        list(gradients.values()), list(expected[2].values()), rtol=1e-10, atol=1e-12
    )


def test_compiling_renames_no_parameter():
    (model, _), plain = compiled("plain"), model_of("plain")
    assert list(model.state_dict()) == list(plain.state_dict())
