"""What placements whose state grows have in common."""

import re

import pytest
import torch
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.laws import faults, tiny_config
from xformer_kit.laws.tiny_composition import Composition, build_tiny_model
from xformer_kit.model.compiling import compile_blocks, graph_kinds


def test_a_shared_block_has_weights_for_its_last_call():
    config = tiny_config(placement="dense_former", layers=5, unique_layers=2, sharing="cycle")
    sizes = [
        [part.average.numel() for part in block.placement.values()]
        for block in build_tiny_model(config).decoder.blocks
    ]
    assert sizes == [[10, 11], [8, 9]]  # layers 4 and 3 of two groups each


@pytest.mark.extended
@pytest.mark.parametrize("name", ["attention_residuals", "lime"])
def test_blocks_compile_whole_in_every_depth(name):
    config = tiny_config(placement=name, layers=5)
    case = Composition(config, "")
    plain, compiled = case.model(), case.model()
    with torch._dynamo.config.patch(recompile_limit=1), torch.no_grad():  # which it raises
        compile_blocks(compiled, fullgraph=True, backend="eager")
        assert_close(case.hidden(compiled, case.ids), case.hidden(plain, case.ids))
    assert graph_kinds(compiled.decoder) == 5


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
