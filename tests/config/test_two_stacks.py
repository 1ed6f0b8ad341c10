"""What is wrong with two stacks is said by one sentence with the path where it lies."""

import pytest
from refusals import refused

from tests.messages import messages
from xformer_kit import ConfigError, compose
from xformer_kit.attention import ATTENTIONS, EIGHT_HEADS, HeadShape, MultiHead
from xformer_kit.config import check
from xformer_kit.registry import Fault

BASE = ["logger=none", "model=encoder_decoder", "task=seq2seq", "model.dim=24", "attn.heads=4"]
OPTIONS = (
    "heads, kv_heads, head_dim, v_head_dim, bias, qk_norm, v_norm, clip, clip_normed, gate, scale,"
    " score, dropout, keys"
)
WINDOW = (
    "mask 'full' has no option 'window'. It has no options. Try {0}=sliding_window or {0}=dilated."
)
VARIANT = "model.decoder.pattern=[a] model.decoder.variants.a="
FAULTS = {
    "model.decoder.cross={heads:5}": (
        "model.decoder.cross.heads: must divide model.dim; got 5 and 24. Try 2, 3, 4 or 6, or set"
        " attn.head_dim."
    ),
    "model.decoder.cross={heds:2}": (
        "model.decoder.cross.heds: attn 'multi_head' has no option 'heds'. Did you mean 'heads'?"
        f" It has: {OPTIONS}."
    ),
    "model.decoder.cross={mask:{window:3}}": (
        f"model.decoder.cross.mask.window: {WINDOW.format('model.decoder.cross.mask')}"
    ),
    "model.decoder.cross={mask:{name:sliding_window,window:0}}": (
        "model.decoder.cross.mask.window: must be at least 1 token; got 0."
    ),
    "position=learned model.decoder.cross={position:learned}": (
        "model.decoder.cross.position: 'learned' is added to the embeddings, and has no place in an"
        " attention to another stack. Use position=none, or one that enters in the attention."
    ),
    "model.decoder.layout=[attn,{cross:{mask:{window:3}}},ffn]": (
        f"model.decoder.layout.cross.mask.window: {WINDOW.format('mask')}"
    ),
    "model.decoder.layout=[attn,ffn]": (
        "model.decoder.layout: no layer attends to the encoder. Put 'cross' into it, or leave"
        " model.encoder out."
    ),
    "model.decoder.attn.heads=6 model.decoder.cross={kv_heads:4}": (
        "model.decoder.cross.kv_heads: must divide attn.heads; got 4 and 6. Try 1, 2, 3 or 6."
    ),
    f"{VARIANT}{{cross:5}}": (
        "model.decoder.variants.a.cross: must be a mapping of options or a name; got 5."
    ),
    f"{VARIANT}{{cross:{{heads:5}}}}": (
        "model.decoder.variants.a.cross.heads: must divide model.dim; got 5 and 24. Try 2, 3, 4 or"
        " 6, or set attn.head_dim."
    ),
    "model.encoder.cross={heads:2}": (
        "model.encoder.cross: attends to an encoder, and the encoder has none. Leave it out."
    ),
    "model.encoder.pattern=[a] model.encoder.variants.a={cross:{heads:2}}": (
        "model.encoder.variants.a.cross: attends to an encoder, and the encoder has none. Leave it"
        " out."
    ),
}


@pytest.mark.parametrize("overrides", FAULTS)
def test_one_fault_is_one_sentence(overrides):
    assert refused([*BASE, *overrides.split()]) == [FAULTS[overrides]]


@pytest.mark.parametrize(
    "overrides",
    [
        "model.decoder.attn.heads=6 model.decoder.cross={kv_heads:3}",  # of the decoder's own heads
        (
            "model.decoder.cross={mask:{name:sliding_window,window:4}}"
            " model.decoder.pattern=[base,a] model.decoder.variants.a={cross:{mask:{window:8}}}"
        ),
        "model.decoder.position.name=learned model.encoder.position.name=none",
    ],
)
def test_a_difference_is_checked_with_the_values_that_it_changes(overrides):
    compose([*BASE, *overrides.split()])


def test_embeddings_are_shared_between_two_stack_only():
    sentence = (
        r"^model\.share_embeddings: is about a source and a target, and the model has one stack\."
        r" Leave it true\.$"
    )
    with pytest.raises(ConfigError, match=sentence):
        compose(["logger=none", "model.share_embeddings=false"])


def test_a_stack_that_is_null_is_left_out():
    assert compose([*BASE[:2], "task=language_modeling", "model.encoder=null"])["model"].keys() & {
        "encoder",
        "decoder",
    } == {"decoder"}
    with pytest.raises(ConfigError, match=r"^model: has no stack\. Add one: "):
        compose(["model.decoder=null"])
    config = compose([])
    config["model"]["encoder"] = None
    [fault] = messages(check(config))
    assert (
        fault
        == "model.encoder: must be a mapping of differences, {} where there are none; got null."
        " Leave the key out for no stack."
    )


# A component of one's own that all sublayers share: refused at the path of those that refuse it.


class Own(MultiHead):
    """Refuses the places of `refuses`."""

    refuses = staticmethod(lambda context: False)

    def __init__(self, dim, norm, kernel, *, shape: HeadShape = EIGHT_HEADS):
        super().__init__(dim, norm, kernel, shape=shape)

    @classmethod
    def cannot(cls, options, context):
        if cls.refuses(context):
            yield Fault("", f"does not work in {context.stack}, {context.path}")


@pytest.fixture
def own():
    ATTENTIONS.register("own")(Own)
    yield Own
    ATTENTIONS.forget(__name__)


REFUSALS = {
    "cross": (lambda one: one.cross, "model.decoder.cross: does not work in decoder, {}."),
    "decoder": (
        lambda one: one.stack == "decoder" and not one.cross,
        "model.decoder.attn: does not work in decoder, {}.",
    ),
    "encoder": (
        lambda one: one.stack == "encoder",
        "model.encoder.attn: does not work in encoder, {}.",
    ),
}


@pytest.mark.parametrize("place", REFUSALS)
def test_a_refusal_is_at_the_path_of_the_sublayer_that_refuses(own, monkeypatch, place):
    refuses, sentence = REFUSALS[place]
    monkeypatch.setattr(own, "refuses", staticmethod(refuses))
    path = {"cross": "model.decoder.cross"}.get(place, f"model.{place}")
    assert refused([*BASE, "attn=own"]) == [sentence.format(path)]


def test_a_refusal_of_all_sublayers_is_at_the_path_that_chose_the_component(own, monkeypatch):
    monkeypatch.setattr(own, "cannot", classmethod(lambda *_: [Fault("", "never works")]))
    assert refused([*BASE, "attn=own"]) == ["attn: never works."]


def test_a_broken_law_of_a_cross_attention_is_at_its_path(own, monkeypatch):
    monkeypatch.setattr(own, "breaks", {"cache": "keeps nothing"}, raising=False)
    [sentence] = refused([*BASE, "model.decoder.cross.name=own"])
    assert sentence.startswith("model.decoder.cross: 'own' breaks the law of cache")


def test_a_task_says_which_stacks_it_trains():
    [sentence] = refused(["logger=none", "model=encoder", "task=seq2seq"])
    assert sentence.startswith(
        "task: 'seq2seq' cannot train a model of encoder, only of encoder and decoder, or decoder."
    )
