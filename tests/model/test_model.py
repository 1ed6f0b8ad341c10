import pytest
import torch

from xformer_kit import ConfigError, build, compose
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import MAX_LEN


@pytest.fixture
def model():
    config = compose(
        [
            "task_defaults=null",
            "model.dim=8",
            "model.layers=1",
            "attn.heads=2",
            "model.vocab_multiple=64",
        ]
    )
    return build(config, vocab_size=65)


def test_rows_that_round_the_vocabulary_up_have_no_logit_and_no_token(model):
    assert model.embed.weight.shape == (128, 8)
    assert model(torch.tensor([[0, 64]])).shape == (1, 2, 65)
    with pytest.raises(IndexError, match=r"^ids: must be ids of .* 0 to 64; got 65\.$"):
        model(torch.tensor([[0, 65]]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.int32])
def test_ids_of_any_integer_type_are_accepted(model, dtype):
    ids = torch.tensor([[1, 2, 64]])
    assert torch.equal(model(ids.to(dtype)), model(ids))
    given = model.generate(ids.to(dtype), max_new_tokens=3, temperature=0.0)
    assert given.dtype == torch.int64
    assert torch.equal(given, model.generate(ids, max_new_tokens=3, temperature=0.0))


IDS_RULE = "ids: must be a tensor of ids (batch, tokens) with at least one token"


@pytest.mark.parametrize(
    ("ids", "fields", "sentence"),
    [
        ([[1]], {}, f"{IDS_RULE}; got list. Try torch.tensor([[1, 2]])."),
        (torch.ones(1, 2), {}, f"{IDS_RULE}; got (1, 2) of torch.float32. Try torch"),
        (torch.arange(3), {}, f"{IDS_RULE}; got (3,) of torch.int64. Try torch"),
        (torch.ones(2, 0).long(), {}, f"{IDS_RULE}; got (2, 0) of torch.int64. Try torch"),
        (
            torch.arange(3)[None],
            {"real": torch.ones(1, 2) > 0},
            "real: must be a tensor (1, 3) of bool; got (1, 2) of torch.bool.",
        ),
        (
            torch.ones(2, 3).long(),
            {"document": torch.ones(3)},
            "document: must be a tensor (2, 3) of integers; got (3,) of torch.float32.",
        ),
        (
            torch.arange(2)[None],
            {"document": [[0, 1]]},
            "document: must be a tensor (1, 2) of integers; got list.",
        ),
        (
            torch.arange(2)[None],
            {"document": torch.tensor([[True, False]])},
            "document: must be a tensor (1, 2) of integers; got (1, 2) of torch.bool.",
        ),
        (
            torch.arange(2)[None],
            {"real": torch.tensor([[1, 0]])},
            "real: must be a tensor (1, 2) of bool; got (1, 2) of torch.int64.",
        ),
    ],
)
def test_invalid_ids_are_reported(model, ids, fields, sentence):
    with pytest.raises(ConfigError) as error:
        model(ids, **fields)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize("wrong", [-1, 128, 65])
def test_ids_outside_the_vocabulary_are_reported(model, wrong):
    with pytest.raises(IndexError) as error:
        model(torch.tensor([[0, wrong]]))
    assert str(error.value) == f"ids: must be ids of the vocabulary, 0 to 64; got {wrong}."


@pytest.mark.parametrize("offset", [0, 2])
@torch.no_grad()
def test_positions_outside_of_a_table_are_reported(offset):
    model = build(
        tiny_config(position={"name": "learned", "offset": offset}, token_types=2), vocab_size=37
    )
    ids, at = torch.tensor([[1, 2]]), torch.arange(2)
    last = MAX_LEN - 1
    for field, values, limit in (
        ("position", (-1, MAX_LEN, 99), last),
        ("segment", (-1, 2), 1),
    ):
        assert model(ids, **{field: at[None] + limit - 1}).isfinite().all()
        for wrong in values:
            with pytest.raises(ConfigError) as error:
                model(ids, **{field: torch.tensor([[0, wrong]])})
            text = f"{field}: must be from 0 to {limit}; got {wrong}."
            assert str(error.value).startswith(text) and "\n" not in str(error.value)


@pytest.mark.parametrize("position", ["none", "learned", "sinusoidal", "rotary", "alibi"])
@torch.no_grad()
def test_fields_of_any_integer_type_are_accepted_and_no_others(position):
    model = build(tiny_config(position=position, token_types=3), vocab_size=37)
    ids, numbers = torch.tensor([[1, 2, 3]]), torch.tensor([[0, 1, 1]])
    for field in ("position", "segment", "document"):
        expected = model(ids, **{field: numbers})
        for dtype in (torch.uint8, torch.int16, torch.uint32):
            assert torch.equal(model(ids, **{field: numbers.to(dtype)}), expected)
        for dtype in (torch.bool, torch.float32, torch.complex64):
            with pytest.raises(
                ConfigError, match=rf"^{field}: .* of integers; got .* of {dtype}\.$"
            ):
                model(ids, **{field: numbers.to(dtype)})


@pytest.mark.parametrize(("scale", "factor"), [("sqrt_dim", 4.0), (0.5, 0.5), (1.0, 1.0)])
@torch.no_grad()
def test_the_embedding_scale_does_not_scale_the_head(scale, factor):
    sizes = ["model.dim=16", "model.layers=1", "attn.heads=2", "position=sinusoidal"]
    made = (compose(["task_defaults=null", *sizes, f"model.embed_scale={s}"]) for s in (1.0, scale))
    plain, scaled = (build(config, vocab_size=65) for config in made)
    read: list[torch.Tensor] = []
    for model in (plain, scaled):
        model.stack.register_forward_pre_hook(lambda module, given: read.append(given[0]))
    logits = [model(torch.tensor([[3, 64]])) for model in (plain, scaled)]
    waves = read[0] - plain.embed.weight[[3, 64]]
    torch.testing.assert_close(read[1], factor * plain.embed.weight[[3, 64]] + waves)
    hidden = torch.ones(1, 1, 16)
    assert torch.equal(scaled.head(hidden), plain.head(hidden))
    assert torch.equal(*logits) == (factor == 1.0)
