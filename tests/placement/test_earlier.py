"""Mixes of all that was before, against their equations and x-transformers' module."""

import re

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from xformer_kit.laws import faults, tiny
from xformer_kit.laws.case import Case
from xformer_kit.laws.case import made as make
from xformer_kit.model.compiling import compile_blocks
from xformer_kit.model.tokens import UNKNOWN
from xformer_kit.placement import PLACEMENTS

DIM, GROUPS = 7, 4
DRAW = torch.Generator().manual_seed(3)
X = torch.randn(2, 3, DIM, generator=DRAW, dtype=torch.float64)
LAYERS = [nn.Linear(DIM, DIM).double() for _ in range(GROUPS)]


def parts(name):
    """A placement for each of a stack's groups, every parameter drawn."""
    given = {"dim": DIM, "norm": lambda: nn.LayerNorm(DIM), "parallel": 1}
    made = [PLACEMENTS.create({"name": name}, latest=at, **given).double() for at in range(GROUPS)]
    for part in made:
        for parameter in part.parameters():
            nn.init.normal_(parameter, generator=DRAW)
    return made


def through(made, factor=1.0):
    state = type(made[0]).start(X, type(made[0]).states)
    for part, layer in zip(made, LAYERS, strict=True):
        state = part(state, [layer], lambda outputs: factor * sum(outputs), UNKNOWN)
    return made[0].finish(state, lambda x: 3 * x)


@torch.no_grad()
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_aggregated_attends_to_all_outputs(factor):
    made = parts("aggregated")
    given, x = [X], X
    for part, layer in zip(made, LAYERS, strict=True):
        given.append(factor * layer(part.norm[0](x)))
        v = torch.stack(given, -2)  # (b, t, k + 1, dim)
        keys = v / (v.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        x = ((keys @ part.query).softmax(-1)[..., None, :] @ v)[..., 0, :]
    assert_close(through(made, factor), 3 * x)


@torch.no_grad()
def test_aggregated_starts_with_the_mean_of_all_outputs():
    made = parts("aggregated")
    for part in made:
        part.query.zero_()
    first = LAYERS[0](made[0].norm[0](X))
    state = made[0](made[0].start(X, 1), [LAYERS[0]], sum, UNKNOWN)
    assert_close(state[0], (X + first) / 2)


@torch.no_grad()
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_dense_former_averages_with_learned_numbers(factor):
    made = parts("dense_former")
    given, x = [X], X
    for k, (part, layer) in enumerate(zip(made, LAYERS, strict=True)):
        given.append(x + factor * layer(part.norm[0](x)))
        assert part.average.shape == (k + 2,)
        x = torch.einsum("i,ibtd->btd", part.average.flip(0), torch.stack(given))
    assert_close(through(made, factor), 3 * x)


@torch.no_grad()
def test_a_model_of_averages_starts_as_one_with_pre():
    case = Case(tiny(placement="pre"), "")
    plain, averages = (
        make(config).eval() for config in (case.config, tiny(placement="dense_former"))
    )
    assert_close(case.read(averages, case.ids), case.read(plain, case.ids))


@torch.no_grad()
def test_lime_reads_the_mix_of_x_transformers():
    module = pytest.importorskip("x_transformers.x_transformers").DynamicLIMe
    made = parts("lime")
    streams = [X]
    for part, layer in zip(made, LAYERS, strict=True):
        mix = X
        if len(streams) > 1:
            theirs = module(DIM, len(streams), norm=False).double()
            theirs.to_weights[0].load_state_dict(
                {k: v.flip(0) for k, v in part.route.state_dict().items()}
            )
            weights_from, theirs.to_weights = theirs.to_weights, None
            theirs.to_weights = nn.Sequential(part.before, *weights_from)
            mix = theirs(streams[-1], streams)
        streams.append(streams[-1] + layer(part.norm[0](mix)))
    assert_close(through(made), 3 * streams[-1])


def test_the_first_group_has_nothing_to_mix():
    first, *_, last = make(tiny(placement="lime", layers=3)).decoder.blocks
    assert first.placement["attn"].route is None
    assert last.placement["ffn"].route.weight.shape == (6, 36)


def test_a_shared_block_has_weights_for_its_last_call():
    config = tiny(placement="dense_former", layers=5, unique_layers=2, sharing="cycle")
    sizes = [
        [part.average.numel() for part in block.placement.values()]
        for block in make(config).decoder.blocks
    ]
    assert sizes == [[10, 11], [8, 9]]  # layers 4 and 3 of two groups each


@pytest.mark.parametrize("name", ["aggregated", "lime"])
def test_blocks_compile_whole_in_every_depth(name):
    config = tiny(placement=name, layers=5)
    case = Case(config, "")
    plain, compiled = case.model(), case.model()
    with torch._dynamo.config.patch(recompile_limit=1), torch.no_grad():  # which it raises
        compile_blocks(compiled, fullgraph=True, backend="eager")
        assert_close(case.read(compiled, case.ids), case.read(plain, case.ids))
    assert compiled.decoder.kinds == 5


@pytest.mark.parametrize(
    ("other", "words"), [("pre", "1 stream"), ("aggregated", "all earlier outputs")]
)
def test_a_stack_has_one_kind_of_stream(other, words):
    variants = {"pattern": ["base", "other"], "variants": {"other": {"placement": other}}}
    (fault,) = faults(tiny(placement="lime", decoder=variants))
    assert re.fullmatch(
        rf"model\.decoder\.variants\.other\.placement: '{other}' carries {words} and the stack's"
        r" 'lime' all earlier streams; "
        r"a stack has one kind of residual stream\. Leave it out, or give the stack the same at"
        r" placement\.",
        fault,
    )
