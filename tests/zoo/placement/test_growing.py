"""What placements whose state grows have in common."""

import re

import pytest
import torch
from torch import _dynamo
from torch._dynamo.testing import CompileCounterWithBackend
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition, build_tiny_model
from xformer_kit.model.compiling import compile_blocks, graph_kinds
from xformer_kit.zoo.placement._packed import packed


def test_a_shared_block_has_weights_for_its_last_call():
    config = tiny_config(placement="dense_former", layers=5, unique_layers=2, sharing="cycle")
    sizes = [
        [part.average.numel() for part in block.placement.values()]
        for block in build_tiny_model(config).decoder.blocks
    ]
    assert sizes == [[10, 11], [8, 9]]  # layers 4 and 3 of two groups each


NAMES = ["attention_residuals", "dense_former", "lime"]


@pytest.mark.extended
@pytest.mark.parametrize("name", NAMES)
def test_all_layers_share_graphs_and_have_the_gradients_without_compilation(name):
    """The graphs of an attention, an ffn, a norm and a mixture, and of a second kind of norm."""
    for layers in (2, 5):
        _dynamo.reset()
        case = Composition(tiny_config(placement=name, layers=layers), "")
        plain, compiled = case.trainable_model().double(), case.trainable_model().double()
        counter = CompileCounterWithBackend("aot_eager")
        compile_blocks(compiled, fullgraph=True, backend=counter)
        for _ in range(2):  # a step, and another one
            expected, found = (_step(case, model) for model in (plain, compiled))
            assert_close(found, expected, rtol=1e-9, atol=1e-11)
        assert counter.frame_count == 4 + (name == "lime") <= graph_kinds(compiled.decoder)
    _dynamo.reset()


def _step(case, model):
    """The hidden states, and the gradients by name."""
    model.zero_grad()
    hidden = case.hidden(model, case.ids)
    (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return hidden.detach(), gradients


def test_packed_streams_are_copied_once_and_have_their_gradients():
    draw = torch.Generator().manual_seed(0)
    streams = [torch.randn(2, 3, 4, generator=draw, requires_grad=True) for _ in range(20)]
    results = [packed(streams[:count]) for count in range(1, 21)]
    for count, result in enumerate(results, 1):
        assert torch.equal(result, torch.stack(streams[:count]))
    assert len({result.data_ptr() for result in results[10:]}) < 3  # a larger buffer at most once
    sum((result.square().sum() for result in results), torch.zeros(())).backward()
    for at, stream in enumerate(streams):
        assert_close(stream.grad, 2 * stream.detach() * (20 - at))


def test_streams_that_replace_packed_ones_do_not_change_them():
    streams = [torch.full((1, 2, 3), float(i)) for i in range(4)]
    first = packed(streams[:3])
    other = packed([*streams[:2], streams[3]])
    assert first[:, 0, 0, 0].tolist() == [0, 1, 2]
    assert other[:, 0, 0, 0].tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("other", "words"), [("pre", "1 stream"), ("attention_residuals", "all earlier outputs")]
)
def test_a_stack_has_one_kind_of_stream(other, words):
    variants = {"pattern": ["base", "other"], "variants": {"other": {"placement": other}}}
    (fault,) = messages(faults(tiny_config(placement="lime", decoder=variants)))
    assert re.fullmatch(
        rf"model\.decoder\.variants\.other\.placement: '{other}' carries {words} and the stack's"
        r" 'lime' all earlier streams; "
        r"a stack has one kind of residual stream\. Leave it out, or give the stack the same at"
        r" placement\.",
        fault,
    )
