"""Tokens after the next one: their targets by eye, their loss and gradients against ordinary
models, step by step.
"""

import pytest
import torch
from torch.func import functional_call
from torch.nn import functional as F
from torch.testing import assert_close

from xformer_kit import build, compose
from xformer_kit.data.batch import map_tensors
from xformer_kit.laws import tiny_config
from xformer_kit.model import loss as module
from xformer_kit.model.build import build_model
from xformer_kit.objective import objective_of
from xformer_kit.tensors.tokens import Tokens

N, VOCAB, LAYERS, ROWS, LENGTH = 3, 29, 2, 4, 12
BLOCKS = {
    "as it comes": {},
    "norms after": {"placement": "post", "position": "learned", "norm": "layer"},
    "a last block of its own": {
        "decoder": {"last": ["wide"], "variants": {"wide": {"ffn": {"name": "mlp", "width": 20}}}},
        "position": "alibi",
    },
}


def made(n=N, weight=1.0, blocks="as it comes", **options):
    """(objective, model of float64 that is moved away from its start)."""
    extra = {"future_tokens": {"count": n, "weight": weight}} if n > 1 else {}
    config = tiny_config(layers=LAYERS, extra=extra, **BLOCKS[blocks])
    config["task"] = {"name": "language_modeling", **options}
    model, draw = build_model(config, VOCAB).double(), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                0.3 * torch.randn(parameter.shape, generator=draw, dtype=parameter.dtype)
            )
    return objective_of(config), model


def batch():
    """Rows that differ in padding and documents, so that they differ in their numbers of
    targets.
    """
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(VOCAB, (ROWS, LENGTH + 1), generator=draw)
    real = torch.arange(LENGTH + 1) < torch.tensor([[13], [9], [13], [2]])
    document = torch.zeros_like(ids)
    document[0, 4:] = 1
    document[2, 5:], document[2, 7:] = 1, 2
    return {"tokens": Tokens(ids, real=real, document=document)}


def trained(objective, model, given):
    """What a step divides by its next tokens, as a mean, and the report."""
    nats, count, report = objective.loss(model, given)
    return (nats + report["loss"] * count) / count, report


def surprise(logits, tokens, row, ahead):
    """Of one row, for every token `ahead` positions after one of its own document."""
    for i in range(LENGTH + 1 - ahead):
        j = i + ahead
        if tokens.real[row, j] and tokens.document[row, i] == tokens.document[row, j]:
            yield F.cross_entropy(logits[row, i], tokens.ids[row, j])


def by_hand(model, blocks, weight):
    """The same by n ordinary models: in the k-th the last block is that for the token k ahead."""
    plain = build_model(tiny_config(layers=LAYERS, **BLOCKS[blocks]), VOCAB).double()
    own, given, means = dict(model.named_parameters()), batch()["tokens"], []
    for ahead in range(1, N + 1):
        last, block = f"decoder.{LAYERS - 1}.", f"decoder.extra.future_tokens.{ahead}."
        held = {
            name: own[name.replace(last, block) if ahead > 1 else name]
            for name in dict(plain.named_parameters())
        }
        fields = {"real": given.real[:, :-1], "document": given.document[:, :-1]}
        logits = functional_call(plain, held, (given.ids[:, :-1],), fields)
        means.append(
            torch.stack(
                [s for row in range(ROWS) for s in surprise(logits, given, row, ahead)]
            ).mean()
        )
    return means[0] + weight * sum(means[1:]), means


def test_targets_by_eye():
    ids, document = torch.tensor([[5, 6, 7, 8, 9]]), torch.tensor([[0, 0, 0, 1, 1]])
    real = torch.tensor([[True, True, True, True, False]])
    assert Tokens(ids).targets(1).tolist() == [[6, 7, 8, 9]]
    assert Tokens(ids).targets(2).tolist() == [[7, 8, 9, -1]]
    assert Tokens(ids).targets(4).tolist() == [[9, -1, -1, -1]]
    assert Tokens(ids).targets(7).tolist() == [[-1, -1, -1, -1]]
    assert Tokens(ids, real=real).targets(2).tolist() == [[7, 8, -1, -1]]
    assert Tokens(ids, document=document).targets(1).tolist() == [[6, 7, -1, 9]]
    assert Tokens(ids, document=document).targets(2).tolist() == [[7, -1, -1, -1]]


@pytest.mark.parametrize("path", ["at once", "chunks"])
@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_loss_and_gradients_are_those_of_ordinary_models(blocks, weight, path, monkeypatch):
    monkeypatch.setattr(module, "MAX_UNCHUNKED", 0 if path == "chunks" else 2**40)
    monkeypatch.setattr(module, "CHUNK", 7 * VOCAB)
    objective, model = made(weight=weight, blocks=blocks)
    ours, report = trained(objective, model, batch())
    theirs, means = by_hand(model, blocks, weight)
    assert_close(ours, theirs, rtol=1e-12, atol=0)
    assert_close(
        [report[f"future_loss_{k}"] for k in (2, 3)], [mean.detach() for mean in means[1:]]
    )
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(ours, parameters)  # every parameter is in the graph
    for a, b in zip(gradients, torch.autograd.grad(theirs, parameters), strict=True):
        assert a.abs().sum() > 0
        assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("terms", [{}, {"label_smoothing": 0.1, "z_loss": 0.01}])
def test_micro_batches_make_the_step_of_the_whole_batch(terms):
    objective, model = made(**terms)
    whole, report = trained(objective, model, batch())
    expected = torch.autograd.grad(whole, list(model.parameters()))
    step, sums, said = objective.add_step_totals(model, batch(), lambda counts: counts), [], {}
    for row in range(ROWS):
        nats, count, told = objective.loss(
            model, map_tensors(step, lambda x, row=row: x[row : row + 1])
        )
        sums.append((nats + told["loss"] * count, count))
        said = {name: said.get(name, 0) + told[name] for name in ("future_loss_2", "future_loss_3")}
    total = sum(nats for nats, _ in sums) / sum(count for _, count in sums)
    assert_close(total, whole)
    assert_close(said, {name: report[name] for name in said})
    assert_close(torch.autograd.grad(total, list(model.parameters())), expected)


def test_ranks_count_the_targets_of_all():
    objective, model = made()
    mine = map_tensors(batch(), lambda x: x[:1])
    step = objective.add_step_totals(
        model, mine, lambda counts: counts + torch.tensor([50, 40, 30])
    )
    assert step["targets"].tolist() == [
        [11 + 50, 9 + 40, 7 + 30]
    ]  # 13 tokens in documents of 4 and 9


def test_a_micro_batch_without_targets_adds_nothing_and_reaches_every_parameter():
    objective, model = made()
    empty = {
        "tokens": Tokens(
            torch.zeros(1, LENGTH + 1, dtype=torch.int64), real=torch.arange(LENGTH + 1)[None] < 1
        )
    }
    nats, count, report = objective.loss(model, empty)
    gradients = torch.autograd.grad(nats + report["loss"] * count, list(model.parameters()))
    assert all((gradient == 0).all() for gradient in gradients)


def test_labels_ask_for_the_same_tokens_of_every_block():
    objective, model = made()
    ids = batch()["tokens"].ids
    labels = torch.where(torch.arange(LENGTH + 1) < 9, -1, ids)
    step = objective.add_step_totals(
        model, {"tokens": Tokens(ids), "labels": labels}, lambda counts: counts
    )
    assert (
        step["targets"][0].tolist() == [4 * ROWS] * 3
    )  # the tokens 9 to 12, also from 2 and 3 places before


@torch.no_grad()
def test_evaluation_and_generation_are_those_of_the_model_without():
    (objective, model), (_, plain) = made(), made(n=1)
    plain.load_state_dict(
        {name: value for name, value in model.state_dict().items() if ".future_tokens." not in name}
    )
    model.eval()
    plain.eval()
    for a, b in zip(objective.loss(model, batch()), objective.loss(plain, batch()), strict=True):
        assert a == b
    ids = batch()["tokens"].ids[:1, :5]
    assert torch.equal(model(ids), plain(ids))
    assert torch.equal(
        model.generate(ids, max_new_tokens=6, temperature=0.0),
        plain.generate(ids, max_new_tokens=6, temperature=0.0),
    )


@pytest.mark.parametrize("init", ["gpt2", "lecun"])
def test_a_model_with_more_blocks_starts_where_one_without_starts(init):
    words = ["logger=none", "model.dim=96", "model.layers=3", "attn.heads=4", f"init={init}"]
    plain, more = (
        build(compose([*words, *extra]), vocab_size=65)
        for extra in ([], ["extra.future_tokens.count=4"])
    )
    assert all(
        torch.equal(value, more.state_dict()[name]) for name, value in plain.state_dict().items()
    )
    assert [prediction.ahead for prediction in more.predictions] == [2, 3, 4]
    own = [more.decoder.blocks[-1], *more.decoder.extra["future_tokens"].children()]
    for kind in ("attn.o.weight", "ffn.down.weight"):  # of one spread, and none the copy of another
        weights = [block.get_parameter(kind).detach() for block in own]
        assert all(0.93 < weight.std() / weights[0].std() < 1.07 for weight in weights)
        assert len({float(weight[0, 0]) for weight in weights}) == 4


def test_dropout_draws_the_same_for_the_next_token():
    """The blocks for later tokens come last, so that the rest of a micro-batch draws as it would
    without them.
    """
    config = tiny_config(layers=LAYERS, extra={"future_tokens": {"count": N}}, dropout=0.3)
    model = build_model(config, VOCAB)
    seen = batch()["tokens"].shifted()[0]
    found = []
    for multi_token in (False, True):
        torch.manual_seed(0)
        found.append(model.hidden(seen, multi_token=multi_token)[0])
    assert torch.equal(found[0], found[1][0])


@torch.no_grad()
def test_no_block_sees_the_future():
    _, model = made()
    ids = batch()["tokens"].ids
    changed = ids.clone()
    changed[:, 8] = (changed[:, 8] + 1) % VOCAB
    one, other = (model.hidden(Tokens(some), multi_token=True)[0] for some in (ids, changed))
    assert one.shape[:3] == (N, ROWS, LENGTH + 1)
    assert_close(one[:, :, :8], other[:, :, :8])
    assert all((a[:, 8:] - b[:, 8:]).abs().max() > 1e-3 for a, b in zip(one, other, strict=True))
