"""Published models: from files that transformers wrote, ours compute the same, and back.

Every parameter is random. In float64 transformers casts nothing to fp32 (`KeepFloat64`).
"""

import json

import pytest
import torch

from xformer_kit.export import save_published
from xformer_kit.hub.architecture import architecture
from xformer_kit.parity.cases import CASES
from xformer_kit.parity.pairs import (
    IDS,
    LEFT,
    RIGHT,
    SOURCE_REAL,
    SOURCES,
    Pair,
    distance,
    double,
    files_of,
    load,
    make_pair,
    our_gradients,
    our_logits,
    their_gradients,
    their_logits,
    their_model,
)
from xformer_kit.pretrained import composition_of, load_published

pytest.importorskip("transformers")
pytestmark = pytest.mark.extended


@pytest.fixture(scope="module", params=CASES, ids=lambda name: name.replace(" ", "-"))
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def pair(case, tmp_path_factory) -> Pair:
    return make_pair(case, tmp_path_factory.mktemp("published"))


@torch.no_grad()
def test_logits_in_float64(pair, case):
    assert distance(our_logits(pair.ours), their_logits(pair.theirs)) < 1e-10
    if case.sdpa:
        theirs = double(their_model(case, "sdpa"))
        assert distance(our_logits(pair.ours), their_logits(theirs)) < 1e-10


def test_gradients_in_float64(pair, tmp_path):
    theirs = their_gradients(pair.theirs, tmp_path)
    ours = our_gradients(pair.ours, pair.table)
    assert ours.keys() <= theirs.keys()
    scale = max(gradient.abs().max() for gradient in theirs.values())
    far = {
        name: float(error)
        for name, gradient in ours.items()
        if (error := (gradient - theirs[name]).abs().max() / scale) > 1e-10
    }
    assert far == {}


def test_fp32_and_bf16(pair, tmp_path):
    """Logits within 1e-5 and gradients within 1e-4 of their scale; a divergence below 1e-3."""
    theirs, ours = load(pair.folder, torch.float32), load_published(pair.folder).float()
    assert distance(our_logits(ours), their_logits(theirs)) < 1e-5
    expected, got = their_gradients(theirs, tmp_path), our_gradients(ours, pair.table)
    scale = max(gradient.abs().max() for gradient in expected.values())
    assert max(float((g - expected[n]).abs().max() / scale) for n, g in got.items()) < 1e-4
    theirs, ours = load(pair.folder, torch.bfloat16), ours.bfloat16()
    with torch.no_grad():
        one, two = (x.double().log_softmax(-1) for x in (our_logits(ours), their_logits(theirs)))
    assert float((two.exp() * (two - one)).sum(-1).mean()) < 1e-3


@torch.no_grad()
@pytest.mark.parametrize("real", [LEFT, RIGHT], ids=["left", "right"])
def test_padding(pair, real):
    real = SOURCE_REAL if pair.ours.two_stacks else real
    ours, theirs = our_logits(pair.ours, real), their_logits(pair.theirs, real)
    shown = torch.ones_like(IDS, dtype=torch.bool) if pair.ours.two_stacks else real
    assert distance(ours[shown], theirs[shown]) < 1e-10


@torch.no_grad()
def test_cached_steps_equal_their_whole_text(pair):
    if pair.ours.names == ("encoder",):
        pytest.skip("an encoder has no cache")
    source = SOURCES if pair.ours.two_stacks else None
    generated = pair.ours.generate(IDS[:, :5], max_new_tokens=6, temperature=0.0, source=source)
    logits = their_logits(pair.theirs, ids=generated)
    assert torch.equal(logits[:, 4:-1].argmax(-1), generated[:, 5:])


def test_files_are_written_back_byte_for_byte(pair, tmp_path):
    model_type = json.loads((pair.folder / "config.json").read_text())["model_type"]
    save_published(tmp_path, pair.ours, pair.composition.config, [model_type])
    theirs, ours = files_of(pair.folder), files_of(tmp_path)
    assert theirs.keys() == ours.keys()
    assert [name for name, tensor in theirs.items() if not torch.equal(tensor, ours[name])] == []


@torch.no_grad()
def test_what_is_written_is_loaded_by_transformers(pair, tmp_path):
    model_type = json.loads((pair.folder / "config.json").read_text())["model_type"]
    save_published(tmp_path, pair.ours, pair.composition.config, [model_type])
    theirs = double(load(tmp_path, torch.float64))
    assert distance(our_logits(pair.ours), their_logits(theirs)) < 1e-10
    again = composition_of(json.loads((tmp_path / "config.json").read_text()))
    first, second = (architecture(one.config, pair.ours) for one in (pair.composition, again))
    assert first == second
