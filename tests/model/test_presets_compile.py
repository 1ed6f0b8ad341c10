"""Presets compile: the whole model is one graph for all lengths, and blocks of a kind share one."""

import pytest
import torch
from torch import _dynamo
from torch._dynamo.testing import CompileCounterWithBackend

from xformer_kit import build, compose
from xformer_kit.model.compiling import compile_blocks, graph_kinds
from xformer_kit.tensors.tokens import Tokens

# Presets with different components, and the layers of one period of their pattern.
PRESETS = {
    **dict.fromkeys(["llama", "gpt2", "bloom", "mpt", "gptj", "gpt_neo", "phi"], 2),
    **dict.fromkeys(["bert", "deberta_v2", "mpnet", "t5", "bart", "whisper", "transformer"], 2),
    **dict.fromkeys(["mixtral", "gpt_oss", "nanochat", "minicpm3"], 2),
    "deepseek_v3": 4,
    "lfm2": 3,
    "cohere2": 4,
    "modernbert": 4,
    "qwen3_next": 4,
    "gemma3": 6,
}
# Those with several kinds of blocks, or with two stacks.
SEVERAL_KINDS = ("gemma3", "modernbert", "deepseek_v3", "qwen3_next", "lfm2", "t5")
LENGTHS = (9, 14, 23)
# A graph of a recurrence is of one number of chunks, and below 64 tokens of one number of halves.
OTHER_LENGTHS = {"qwen3_next": (17, 23, 30)}


@pytest.fixture(autouse=True)
def fresh():
    _dynamo.reset()
    yield
    _dynamo.reset()


def made(preset: str):
    words = [f"preset={preset}", "model.dim=96", f"model.layers={PRESETS[preset]}", "attn.heads=4"]
    return build(compose(words, data=False), vocab_size=64).train()


def inputs(model, length: int):
    """Ids (2, length), and those of a source if there are two stacks."""
    ids = torch.randint(64, (2, length))
    return ids, torch.randint(64, (2, length + 3)) if model.two_stacks else None


def hidden(model, ids, source):
    return model.hidden(Tokens(ids), source=None if source is None else Tokens(source))[0]


@pytest.mark.extended
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_one_graph_for_all_lengths(preset):
    model, counter = made(preset), CompileCounterWithBackend("eager")
    compiled = torch.compile(
        lambda *ids: model.head(hidden(model, *ids)), fullgraph=True, backend=counter
    )
    for length in OTHER_LENGTHS.get(preset, LENGTHS):
        ids, source = inputs(model, length)
        for x in (ids, source):
            if x is not None:
                _dynamo.mark_dynamic(x, 1)
        compiled(ids, source)
    assert counter.frame_count == 1


@pytest.mark.extended
@pytest.mark.parametrize("preset", SEVERAL_KINDS)
def test_blocks_of_a_preset_compile_once_for_each_kind_and_again_for_all_lengths(preset):
    model, counter = made(preset), CompileCounterWithBackend("eager")
    compile_blocks(model, fullgraph=True, backend=counter)
    counts = []
    for length in OTHER_LENGTHS.get(preset, LENGTHS):
        hidden(model, *inputs(model, length))
        counts.append(counter.frame_count)
    kinds = sum(graph_kinds(getattr(model, name)) for name in model.names)
    assert counts[0] <= kinds
    assert counts[1] == counts[2] <= 2 * kinds
