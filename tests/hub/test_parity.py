"""Published models: from files that transformers wrote, ours compute the same, and back.

Every parameter is random. In float64 transformers casts nothing to fp32 (`KeepFloat64`).
"""

import pytest

from xformer_kit.parity import measures
from xformer_kit.parity.cases import CASES
from xformer_kit.parity.pairs import LEFT, RIGHT, Pair, make_pair

pytest.importorskip("transformers")
pytestmark = pytest.mark.every_case
# Families of `make test`.
QUICK = ("gpt2", "llama", "bert", "t5")


def parameters():
    """The cases; all but some are extended."""
    for name in CASES:
        marks = () if name in QUICK else pytest.mark.extended
        yield pytest.param(CASES[name], id=name.replace(" ", "-"), marks=marks)


@pytest.fixture(scope="module", params=parameters())
def pair(request, tmp_path_factory) -> Pair:
    return make_pair(request.param, tmp_path_factory.mktemp("published"))


def test_logits_in_float64(pair):
    assert measures.logits(pair) < 1e-10
    if pair.case.sdpa:
        assert measures.logits_with_sdpa(pair) < 1e-10


def test_gradients_in_float64(pair):
    distances = measures.gradients_by_name(pair)
    assert {name: far for name, far in distances.items() if far > 1e-10} == {}


def test_fp32_and_bf16(pair):
    """Logits within 1e-5 and gradients within 1e-4 of their scale; a divergence below 1e-3."""
    assert measures.logits_in_fp32(pair) < 1e-5
    assert measures.gradients_in_fp32(pair) < 1e-4
    assert measures.divergence_in_bf16(pair) < 1e-3


@pytest.mark.parametrize("real", [LEFT, RIGHT], ids=["left", "right"])
def test_padding(pair, real):
    far = measures.padded_logits(pair, real)
    if far is None:
        pytest.skip("sources are padded on the right")
    assert far < 1e-10


def test_cached_steps_equal_their_whole_text(pair):
    if pair.ours.names == ("encoder",):
        pytest.skip("an encoder has no cache")
    assert measures.cached_tokens(pair) == 0


def test_files_are_written_back_byte_for_byte(pair):
    assert measures.differing_tensors(pair) == []


def test_what_is_written_is_loaded_by_transformers(pair):
    assert measures.exported_logits(pair) < 1e-10
    first, second = measures.architectures(pair)
    assert first == second
