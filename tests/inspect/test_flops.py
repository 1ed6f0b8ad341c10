"""FLOPs are those of torch's counter, for every component that is registered."""

from itertools import islice

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from xformer_kit import build, compose
from xformer_kit.inspect import flops
from xformer_kit.kernel import cannot_train_on
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.trials import COMPANIONS, trials
from xformer_kit.model.build import build_model
from xformer_kit.objective import OBJECTIVES, objective_of
from xformer_kit.plan import KINDS

pytestmark = pytest.mark.extended

# A kernel that computes no gradients on a CPU has nothing to count here.
COMPONENTS = [
    (k, name)
    for k, components in KINDS.items()
    for name in components
    if k != "kernel" or not cannot_train_on(name, "cpu")
]
SHAPES = [(5, 24, 2), (16, 48, 1), (33, 12, 3)]  # tokens, dim, layers
VOCAB = 37


def training_flops(*arguments):
    return flops.count(*arguments).training


def counted(config, length, training=False):
    """Torch's own count of a real model on this machine, by the kernels that are made of matrix
    products only: per token, forward, and with `training` also forward and backward.
    """
    if KINDS["attn"][config["attn"]["name"]].computes == "scores":
        config = {**config, "kernel": {"name": "reference"}}
    model = build_model(config, VOCAB)
    ids = torch.zeros(1, length, dtype=torch.int64)
    source = {"source": ids} if model.two_stacks else {}
    solved = {torch.ops.aten.linalg_solve_triangular: triangular}
    counter = FlopCounterMode(display=False, custom_mapping=solved)
    with sdpa_kernel(SDPBackend.MATH), counter:
        logits = model(ids, **source)
        found = [counter.get_total_flops()]
        if training:
            logits.sum().backward()
            found.append(counter.get_total_flops())
    return [total / (length * (1 + model.two_stacks)) for total in found]


def triangular(system, right, *rest, out_shape, **named):
    """n (n - 1) / 2 products and as many sums for each column, counted as n^2, which torch's
    counter does not know.
    """
    *batch, n, columns = right
    return torch.Size(batch).numel() * n * n * columns


def on_meta(config):
    with torch.device("meta"):
        return build_model(config, VOCAB)


@pytest.mark.parametrize(("kind", "name"), COMPONENTS, ids=lambda x: str(x))
def test_every_component_costs_what_torch_counts(kind, name):
    """With each set of companions once, a position and a placement with every third; in one layer,
    but for a placement, which may look at those before.
    """
    layers = {} if kind == "placement" else {"layers": 1}
    step = 3 if kind in ("position", "placement") else 1
    made = (trial.config for trial in trials(kind, name)[: len(COMPANIONS) : step])
    valid = (
        one for one in ({**c, "model": {**c["model"], **layers}} for c in made) if not faults(one)
    )
    checked = 0
    for config in islice(
        valid, 2 if kind in ("mask", "norm", "kernel") else None
    ):  # in which a count has no component
        checked += 1
        found = flops.count(on_meta(config), 13)
        assert [found.forward, found.training] == pytest.approx(
            counted(config, 13, training=True), rel=0.01
        )
    assert checked


@pytest.mark.parametrize(
    "component", [{kind: name} for kind in ("attn", "ffn") for name in KINDS[kind]], ids=str
)
@pytest.mark.parametrize(("length", "dim", "layers"), SHAPES)
def test_every_shape_costs_what_torch_counts(component, length, dim, layers):
    config = tiny_config(**component, dim=dim, layers=layers, max_len=64)
    assert [flops.count(on_meta(config), length).forward] == pytest.approx(
        counted(config, length), rel=0.01
    )


def test_a_decoder_by_hand():
    """2 n k m for each product; scores and weighted values are a product each of t x head_dim x t
    in every head.
    """
    config = tiny_config(
        attn={"name": "multi_head", "heads": 6, "kv_heads": 3, "head_dim": 10}, ffn="glu", layers=1
    )
    dim, length, width = 36, 13, config["ffn"]["width"]
    projections = 2 * dim * (60 + 30 + 30 + 60)
    scores = 2 * 2 * 6 * 10 * length
    by_hand = projections + scores + 3 * 2 * dim * width + 2 * dim * VOCAB
    found = flops.count(on_meta(config), length)
    assert found.forward == by_hand
    assert found.training == 3 * by_hand
    assert found.modules["decoder.0.ffn"] == 3 * 2 * dim * width
    assert found.modules["decoder.0.attn"] == projections + scores


def test_blocks_of_further_predictions_cost_only_in_training():
    """Each a block and the logits of a token, forward and backward."""
    attn = {"name": "multi_head", "heads": 6, "kv_heads": 6, "head_dim": 10}
    plain, more = (
        flops.count(on_meta(tiny_config(attn=attn, ffn="glu", layers=2, extra=extra)), 13)
        for extra in ({}, {"future_tokens": {"count": 4}})
    )
    assert more.forward == plain.forward
    assert more.training - plain.training == 3 * 3 * (plain.modules["decoder.1"] + 2 * 36 * VOCAB)


def test_two_stacks_by_hand():
    """Of 2 n tokens: the encoder reads n, the decoder n and n of the source's, the head n."""
    attn = {"name": "multi_head", "heads": 6, "kv_heads": 6, "head_dim": 10}
    config = tiny_config("encoder_decoder", attn=attn, ffn="glu", layers=1, encoder={"layers": 2})
    dim, length, width = 36, 13, config["ffn"]["width"]
    attention = 4 * 2 * dim * 60 + 2 * 2 * 6 * 10 * length
    ffn, logits = 3 * 2 * dim * width, 2 * dim * VOCAB
    found = flops.count(on_meta(config), length)
    assert found.forward == (2 * (attention + ffn) + (2 * attention + ffn) + logits) / 2
    assert found.training == 3 * found.forward
    assert found.modules["encoder"] == attention + ffn
    assert found.modules["decoder.0.cross"] == attention / 2


@pytest.mark.parametrize(
    "words", [["kernel=sdpa"], ["kernel=reference"], ["kernel=sdpa", "attn.dropout=0.1"]]
)
def test_the_figure_belongs_to_the_model_and_not_to_its_kernel_or_device(words):
    config = compose(["logger=none", "model.dim=32", "model.layers=2", "attn.heads=4", *words])
    real = build(config, 65)
    assert training_flops(real, 16) == training_flops(build_model(config, 65).to("meta"), 16)
    assert flops._count(real, 16, "cpu").training == training_flops(real, 16)


def test_counting_leaves_the_model_as_it_is():
    config = compose(["logger=none", "model.dim=32", "model.layers=1", "attn.heads=4"])
    model = build(config, 65)
    before = {name: p.clone() for name, p in model.named_parameters()}
    training_flops(model, 8)
    assert all(
        torch.equal(p, before[name]) and p.grad is None for name, p in model.named_parameters()
    )
    assert model.head.weight is model.embed.weight


def test_a_large_vocabulary_is_counted_too():
    config = compose(["logger=none", "model.dim=32", "model.layers=1", "attn.heads=4"])
    small, large = (training_flops(build_model(config, n).to("meta"), 256) for n in (64, 50_000))
    assert large - small == 3 * 2 * 32 * (50_000 - 64)


@pytest.mark.parametrize(
    ("model", "task", "mask"),
    [
        ("encoder", "masked_language_modeling", "full"),
        ("decoder", "prefix_language_modeling", "prefix"),
        ("decoder", "seq2seq", "prefix"),
        ("encoder_decoder", "seq2seq", "causal"),
    ],
)
def test_a_step_of_a_task_costs_what_torch_counts_of_its_loss(model, task, mask):
    """The loss as it is trained, on a batch of the longest examples, of which no more is asked for
    than on average.
    """
    config = tiny_config(model, mask=mask, kernel="reference") | {"task": OBJECTIVES.defaults(task)}
    if task == "masked_language_modeling":
        config["task"]["rate"] = 0.25
    objective, real, length = objective_of(config), build_model(config, VOCAB), 16
    batch = objective.blank(1, length)
    if task == "masked_language_modeling":
        batch["labels"] = torch.where(torch.arange(length) < 4, 0, -1)[None]  # a quarter
    with FlopCounterMode(display=False) as counter:
        objective.loss(real, batch)[0].backward()
    found = training_flops(on_meta(config), length, objective.given_logits)
    assert found == counter.get_total_flops() / (length * (1 + real.two_stacks))
    if model == "encoder":
        assert found < training_flops(on_meta(config), length)
