"""Embeddings in place of ids, plain ids for `hidden`, and arguments of other libraries."""

import pytest
import torch
from torch.testing import assert_close

from xformer_kit import ConfigError
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import VOCAB
from xformer_kit.model.build import build_model
from xformer_kit.registry.other_libraries import OTHER_ARGUMENTS

IDS = torch.arange(12).view(2, 6)
SOURCE = torch.arange(10).view(2, 5)
GAP = torch.tensor([[True, False, True, True, True, True], [True] * 6])
WINDOW = {"name": "sliding_window", "window": 3}


def model(**options):
    return build_model(tiny_config(**options), VOCAB).eval()


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, {}),
        ({"embed_scale": 3.0, "embed_dim": 12, "position": "learned"}, {"real": GAP}),
        ({"mask": WINDOW}, {"real": GAP}),  # padding in a row: tokens are computed in another order
        ({"token_types": 2}, {"segment": IDS % 2}),
        ({"model": "encoder_decoder"}, {"source": SOURCE}),
    ],
)
@torch.no_grad()
def test_the_embeddings_of_ids_are_computed_as_the_ids(options, fields):
    ours = model(**options)
    ids = {"target" if "source" in fields else "ids": IDS}
    logits = ours(**ids, **fields)
    embeds = ours.embed(IDS)
    assert_close(ours(inputs_embeds=embeds, **fields), logits, rtol=0, atol=0)
    assert_close(ours(IDS, inputs_embeds=embeds, **fields), logits, rtol=0, atol=0)
    assert not torch.equal(ours(IDS, inputs_embeds=embeds + 1, **fields), logits)


def test_a_gradient_reaches_the_embeddings():
    ours = model()
    embeds = ours.embed(IDS).detach().requires_grad_()
    ours(inputs_embeds=embeds)[:, 2].sum().backward()
    assert embeds.grad[:, :3].abs().sum() > 0 and not embeds.grad[:, 3:].any()


@torch.no_grad()
def test_hidden_takes_ids_or_embeddings():
    ours, both = model(), model(model="encoder_decoder")
    logits = ours(IDS)
    for inputs in ({"tokens": IDS}, {"inputs_embeds": ours.embed(IDS)}):
        hidden, report = ours.hidden(**inputs)
        assert_close(ours.head(hidden), logits, rtol=0, atol=0)
        assert report == {}
    hidden, _ = both.hidden(IDS, source=SOURCE)
    assert_close(both.head(hidden), both(source=SOURCE, target=IDS), rtol=0, atol=0)


@torch.no_grad()
def test_ids_follow_embeddings_in_a_cache():
    ours = model()
    cache = ours.cache(2, 6)
    first = ours(inputs_embeds=ours.embed(IDS[:, :4]), cache=cache)
    assert_close(torch.cat([first, ours(IDS[:, 4:], cache=cache)], 1), ours(IDS))


def test_tokens_are_not_computed_again_from_ids_that_embeddings_replaced():
    ours = model(mask=WINDOW)
    cache = ours.cache(2, 12)
    ours(IDS, inputs_embeds=ours.embed(IDS) + 1, cache=cache)
    with pytest.raises(ConfigError, match="inputs_embeds: are not kept by the cache"):
        ours(IDS, real=GAP, cache=cache)


def test_a_component_that_looks_ids_up_needs_them():
    ours = model(extra={"deep_embed": {}})
    embeds = ours.embed(IDS)
    with pytest.raises(ConfigError, match="inputs_embeds: a component looks up the ids") as error:
        ours(inputs_embeds=embeds)
    assert error.value.faults[0].fix == "Give the ids next to them."
    assert_close(ours(IDS, inputs_embeds=embeds), ours(IDS), rtol=0, atol=0)


def test_faulty_inputs_are_one_sentence():
    ours = model()
    floats = f"inputs_embeds: must be a tensor (batch, tokens, {ours.dim}) of floats; got "
    faulty = (
        (ours, {"inputs_embeds": IDS}, floats + "(2, 6) of torch.int64. Try model.embed(ids)."),
        (ours, {"inputs_embeds": 3}, floats + "int. Try model.embed(ids)."),
        (
            ours,
            {"ids": IDS, "inputs_embeds": ours.embed(IDS[:1])},
            "inputs_embeds: must have the rows and tokens of ids; got (1, 6) and (2, 6).",
        ),
        (ours.hidden, {"tokens": IDS[0]}, "ids: must be a tensor of ids (batch, tokens) with at"),
        (ours.hidden, {}, "ids: must be a tensor of ids (batch, tokens) with at"),
    )
    for call, inputs, sentence in faulty:
        with pytest.raises(ConfigError) as error:
            call(**inputs)
        assert error.value.messages[0].startswith(sentence)
    with pytest.raises(IndexError, match="ids: must be ids of the vocabulary"):
        ours.hidden(IDS + VOCAB)


OTHER = (
    ("forward", {"input_ids": IDS}, "input_ids: is called ids here. Give it as ids."),
    (
        "forward",
        {"attention_mask": IDS},
        "attention_mask: is called real here, a bool tensor that is False on padding."
        " Give real=attention_mask.bool().",
    ),
    ("forward", {"labels": IDS}, "labels: the model returns logits, no loss. Wrap it,"),
    ("forward", {"sources": IDS}, "sources: the model has no such argument. Did you mean 'source'"),
    (
        "generate",
        {"max_tokens": 3},
        "max_tokens: is called max_new_tokens here. Give max_new_tokens=3.",
    ),
    ("generate", {"do_sample": False}, "do_sample: the temperature decides it. temperature=0 is"),
    ("generate", {"beam": 2, "num_beams": 2}, "num_beams: is called beam here. Give beam=2."),
)


@pytest.mark.parametrize(("call", "arguments", "sentence"), OTHER, ids=[text for *_, text in OTHER])
def test_arguments_of_other_libraries_are_answered_with_ours(call, arguments, sentence):
    ours = model()
    with pytest.raises(ConfigError) as error:
        getattr(ours, call)(IDS, **arguments)
    assert error.value.messages[0].startswith(sentence)


def test_every_answer_names_an_argument():
    """The names that the answers give are those of our calls."""
    import inspect

    from xformer_kit.generate import Decoding, generate

    known = {
        "forward": inspect.signature(model().forward).parameters.keys(),
        "generate": inspect.signature(generate).parameters.keys() | Decoding.__annotations__.keys(),
    }
    for call, answers in OTHER_ARGUMENTS.items():
        ours = {answer for answer in answers.values() if isinstance(answer, str)}
        assert ours <= known[call] and not answers.keys() & known[call]
