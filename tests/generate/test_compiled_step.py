"""Compiled steps: the texts and logits are those of ordinary steps, by one graph for all tokens."""

import gc
import weakref

import pytest
import torch
from torch._dynamo.utils import counters

from xformer_kit import ConfigError, build, compose
from xformer_kit.generate import stream
from xformer_kit.generate.compiled_step import CACHES, CompiledModel
from xformer_kit.generate.prompt import CachedModel, prompt_of

SMALL = ["model.dim=48", "model.layers=2", "attn.heads=4"]
VOCAB, NEW = 64, 10
IDS = torch.arange(40).view(2, 20) % VOCAB
REAL = torch.arange(20) >= torch.tensor([[0], [5]])


def model_of(*words):
    config = compose([*SMALL, *words], data=False)
    torch.manual_seed(1)
    model = build(config, vocab_size=VOCAB, source_vocab_size=VOCAB).double().eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.2)
    return model


@torch.inference_mode()
def logits(kind, model, real, new=NEW):
    source = {"source": IDS} if model.two_stacks else {}
    cached = kind(model, prompt_of(model, IDS, new, real=real, **source), new)
    found = [cached.first(), *(cached(ids) for ids in IDS.T[:new])]
    return torch.stack(found)


@pytest.fixture(autouse=True)
def own_graphs():
    torch._dynamo.reset()
    counters.clear()


LINES = [  # what the step reads of the tokens differs
    pytest.param(["preset=llama3"], id="llama3"),
    *(
        pytest.param(line, id=" ".join(line), marks=pytest.mark.extended)
        for line in (
            ["preset=gpt2"],
            ["preset=bloom"],
            ["preset=mixtral"],
            ["preset=minicpm3"],
            ["preset=t5"],
            ["preset=bart"],
            ["kernel=reference"],
            ["attn=differential"],
            ["model.loops=2"],
        )
    ),
]


@pytest.mark.every_case
@pytest.mark.parametrize("line", LINES)
def test_one_graph_computes_the_logits_of_ordinary_steps(line):
    """For prompts with and without padding, with the caches of an earlier text, and at the last
    token for which there is room.
    """
    model = model_of(*line)
    for real in (REAL, None):
        for new in (NEW, 20):
            expected, found = (
                logits(kind, model, real, new) for kind in (CachedModel, CompiledModel)
            )
            # angles of rotary positions are fp32, and their sines differ in the last digit
            torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-7)
    assert counters["stats"]["unique_graphs"] == 1
    assert len(CACHES[model]) == 1


def test_each_length_has_a_graph_which_equal_models_share_and_which_keeps_none():
    models = [model_of("preset=llama3", "model.layers=1") for _ in range(2)]
    for model in models:
        for new in (5, 120):
            model.generate(IDS, new, compiled=True, temperature=0.0)
    assert [len(CACHES[model]) for model in models] == [2, 2]
    assert counters["stats"]["unique_graphs"] == 2
    dead = weakref.ref(models[0])
    del models, model
    torch._dynamo.reset()
    gc.collect()
    assert dead() is None


def test_two_texts_at_once_have_caches_of_their_own():
    model = model_of("preset=llama3", "model.layers=1")
    options = {"max_new_tokens": 6, "temperature": 0.0}
    expected = [torch.stack([*stream(model, ids, **options)]) for ids in (IDS, IDS + 1)]
    pairs = zip(
        *(stream(model, ids, compiled=True, **options) for ids in (IDS, IDS + 1)), strict=True
    )
    for found, tokens in zip(zip(*pairs, strict=True), expected, strict=True):
        assert torch.equal(torch.stack(found), tokens)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.extended
def test_texts_are_those_of_ordinary_steps():
    model = model_of("preset=llama3")
    for options in ({"temperature": 0.0}, {"seed": 3, "top_k": 5, "num_return": 2}):
        expected, found = (
            model.generate(IDS, NEW, real=REAL, compiled=compiled, **options)
            for compiled in (False, True)
        )
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("words", "options", "reason"),
    [
        (["mask=sliding_window"], {}, "masks that hide later tokens only"),
        (["attn=retention", "position=none"], {}, "no table of keys and values"),
        (["extra.canon={}"], {}, "extra 'canon'"),
        (
            ["data.seq_len=16", "model.max_len=16", "position.scaling=dynamic"],
            {},
            "number of tokens",
        ),
        ([], {"beam": 2}, "has no effect with beam=2"),
        ([], {"penalty_alpha": 0.5, "top_k": 3}, "has no effect with penalty_alpha=0.5"),
    ],
)
@pytest.mark.every_case
def test_what_cannot_be_compiled_is_refused(words, options, reason):
    model = model_of(*words)
    with pytest.raises(ConfigError, match=f"compiled: .*{reason}"):
        model.generate(IDS, NEW, compiled=True, **options)
