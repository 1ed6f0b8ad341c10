"""Beam search gives the sequences, scores and order of `transformers` for the same logits."""

import os
from types import SimpleNamespace

import pytest
import torch

from tests.generate.conftest import build_small
from xformer_kit import ConfigError
from xformer_kit.generate import beam_search, generate, stream
from xformer_kit.generate import score as score_of

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers")

VOCAB, START, END = 11, 9, 10


def model_of(kind, scale, *more):
    """Weights large enough for texts to end at different times."""
    return build_small(kind, VOCAB, 15, scale, *more)


class Ids(torch.nn.Module):
    """Hands the source on, for `Peer` to encode."""

    def forward(self, input_ids, attention_mask=None, **_):
        return transformers.modeling_outputs.BaseModelOutput(last_hidden_state=input_ids)


class Peer(transformers.PreTrainedModel, transformers.GenerationMixin):
    """Our logits, uncached, under the search of transformers."""

    config_class = transformers.PreTrainedConfig
    main_input_name = "input_ids"

    def __init__(self, model):
        two = model.two_stacks
        super().__init__(
            transformers.PreTrainedConfig(is_encoder_decoder=two, decoder_start_token_id=START)
        )
        self.ours = model
        self.generation_config = transformers.GenerationConfig(
            decoder_start_token_id=START, pad_token_id=END
        )

    @property
    def device(self):
        return torch.device("cpu")

    def get_encoder(self, modality=None):
        return Ids()

    def prepare_inputs_for_generation(self, ids, attention_mask=None, encoder_outputs=None, **_):
        return {"ids": ids, "attention_mask": attention_mask, "encoder_outputs": encoder_outputs}

    def forward(self, ids, attention_mask=None, encoder_outputs=None, input_ids=None, **_):
        if encoder_outputs is None:
            logits = self.ours(ids, real=None if attention_mask is None else attention_mask.bool())
        else:
            source = encoder_outputs.last_hidden_state  # the source's ids
            logits = self.ours(source=source, source_real=attention_mask.bool(), target=ids)
        return transformers.modeling_outputs.Seq2SeqLMOutput(logits=logits)


def theirs(model, ids, real, new, **options):
    out = Peer(model).generate(
        ids,
        attention_mask=real.long(),
        max_new_tokens=new,
        do_sample=False,
        use_cache=False,
        eos_token_id=END,
        pad_token_id=END,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    return SimpleNamespace(ids=out.sequences, scores=out.sequences_scores)


ROWS = torch.tensor(
    [
        [1, 2, 3, 4, 5, 6],
        [7, 8, 1, 2, 0, 0],
        [3, 0, 0, 0, 0, 0],
        [5, 5, 2, 0, 0, 0],
        [8, 6, 4, 2, 1, 0],
    ]
)
LENGTHS = torch.tensor([6, 4, 1, 3, 5])
RIGHT = torch.arange(6) < LENGTHS[:, None]


def sources():
    return {"source": ROWS, "source_real": RIGHT, "start": START}


def prompts():
    return {"ids": ROWS.flip(1), "real": RIGHT.flip(1)}


def same(ours, expected, count):
    """The same texts, up to columns that only hold the end, and scores."""
    got, width = ours.ids.flatten(0, 1), expected.ids.shape[1]
    assert got[:, :width].tolist() == expected.ids.tolist()
    assert (got[:, width:] == END).all()
    torch.testing.assert_close(ours.scores.flatten(), expected.scores, rtol=1e-5, atol=1e-5)
    assert (ours.scores.diff(dim=1) <= 0).all() and ours.ids.shape[1] == count


@torch.no_grad()
@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize("early", [True, False, "never"])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0, -1.0])
@pytest.mark.parametrize("kind", ["encoder_decoder", "decoder"])
def test_sequences_scores_and_order_are_those_of_transformers(kind, penalty, early, scale):
    model = model_of(kind, scale)
    given = sources() if kind == "encoder_decoder" else prompts()
    ids, real = (
        (given["source"], given["source_real"]) if kind == "encoder_decoder" else given.values()
    )
    options = {"length_penalty": penalty, "early_stopping": early}
    expected = theirs(model, ids, real, 9, num_beams=4, num_return_sequences=3, **options)
    ours = beam_search(model, **given, max_new_tokens=9, beam=4, num_return=3, end=END, **options)
    same(ours, expected, 3)


@torch.no_grad()
@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize("kind", ["encoder_decoder", "decoder"])
def test_texts_of_the_comparison_end_at_different_times(kind, scale):
    """So that it compares finished beams, unfinished ones, and prompts that are done before
    others.
    """
    given = sources() if kind == "encoder_decoder" else prompts()
    ours = beam_search(
        model_of(kind, scale), **given, max_new_tokens=9, beam=4, num_return=3, end=END
    )
    assert len(ours.lengths.unique()) > 3 and len(ours.lengths[:, 0].unique()) > 1


@torch.no_grad()
@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.7},
        {"no_repeat_ngram": 2},
        {"min_new_tokens": 4},
        {"repetition_penalty": 0.6, "min_new_tokens": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["encoder_decoder", "decoder"])
def test_constraints_act_on_log_probabilities_as_in_transformers(kind, options):
    model = model_of(kind, 2.0)
    given = sources() if kind == "encoder_decoder" else {"ids": ROWS[:, :3]}
    ids, real = (ROWS, RIGHT) if kind == "encoder_decoder" else (ROWS[:, :3], torch.ones(5, 3))
    named = {
        "no_repeat_ngram_size" if name == "no_repeat_ngram" else name: value
        for name, value in options.items()
    }
    expected = theirs(model, ids, real, 8, num_beams=3, num_return_sequences=3, **named)
    same(
        beam_search(model, **given, max_new_tokens=8, beam=3, num_return=3, end=END, **options),
        expected,
        3,
    )


@torch.no_grad()
@pytest.mark.parametrize("beam", [2, 5])
def test_a_prompt_in_a_batch_has_the_same_result_as_by_itself(beam):
    model = model_of("encoder_decoder", 2.0)
    together = beam_search(model, **sources(), max_new_tokens=12, beam=beam, num_return=2, end=END)
    for row, length in enumerate(LENGTHS.tolist()):
        single = beam_search(
            model,
            source=ROWS[row : row + 1, :length],
            start=START,
            max_new_tokens=12,
            beam=beam,
            num_return=2,
            end=END,
        )
        width = single.ids.shape[-1]
        assert together.ids[row, :, :width].tolist() == single.ids[0].tolist()
        torch.testing.assert_close(together.scores[row], single.scores[0], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_score_is_the_log_probability_of_the_text_over_its_length():
    model = model_of("encoder_decoder", 2.0)
    found = beam_search(
        model, **sources(), max_new_tokens=9, beam=4, num_return=2, end=END, length_penalty=1.0
    )
    for at in range(2):
        real = torch.arange(found.ids.shape[-1]) <= found.lengths[:, at, None]
        nats = score_of(model, found.ids[:, at], source=ROWS, source_real=RIGHT, real=real).sum(1)
        torch.testing.assert_close(
            found.scores[:, at], nats / found.lengths[:, at], rtol=1e-4, atol=1e-4
        )


@torch.no_grad()
@pytest.mark.parametrize("early", [True, False, "never"])
def test_one_beam_is_greedy(early):
    model = model_of("encoder_decoder", 2.0)
    greedy = generate(model, **sources(), max_new_tokens=9, temperature=0.0, end=END)
    assert (
        generate(
            model, **sources(), max_new_tokens=9, beam=1, early_stopping=early, end=END
        ).tolist()
        == greedy.tolist()
    )


@torch.no_grad()
def test_as_many_beams_as_texts_find_the_likeliest():
    """Of all 11 + 11 * 11 texts of two tokens, by counting."""
    model = model_of("decoder", 1.0)
    ids = torch.tensor([[1, 2]])
    pairs = torch.cartesian_prod(torch.arange(VOCAB), torch.arange(VOCAB))
    nats = score_of(model, torch.cat([ids.expand(len(pairs), -1), pairs], 1))[:, -2:].sum(1)
    found = beam_search(model, ids, 2, beam=VOCAB * VOCAB // 2, num_return=5)
    assert found.ids[0, :, 2:].tolist() == pairs[nats.topk(5).indices].tolist()


@torch.no_grad()
def test_allowed_is_called_for_each_prompt_and_never_after_the_end():
    asked = []

    def allowed(row, ids):
        asked.append((row, ids.tolist()))
        return [row, END] if len(ids) > 2 else [row]

    model = model_of("encoder_decoder", 1.0)
    out = generate(model, **sources(), max_new_tokens=5, beam=2, end=END, allowed=allowed)
    for row, text in enumerate(out[:, 1:].tolist()):
        assert set(text) <= {row, END} and text[:2] == [row, row]
    assert all(END not in ids for _, ids in asked) and {row for row, _ in asked} == set(range(5))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beam": 0}, "beam: must be at least 1; got 0."),
        (
            {"beam": 2, "temperature": 0.7},
            "temperature: has no effect with beam=2; got 0.7. Leave it out.",
        ),
        (
            {"beam": 2, "top_k": 3},
            "top_k: has no effect with beam=2; got 3. Leave it out.",
        ),
        (
            {"beam": 2, "num_return": 3},
            "num_return: must be at most beam, which is 1 by default, for texts that are not drawn;"
            " got 3 and 2. Try beam=3, or temperature=1.",
        ),
        (
            {"beam": 2, "early_stopping": "soon"},
            "early_stopping: must be true or false or never or null; got 'soon'.",
        ),
        (
            {"length_penalty": 2.0},
            "length_penalty: has no effect without beam; got 2.0. Leave it out.",
        ),
        (
            {"beam": 2, "stop": "x"},
            "stop: has no effect with beam=2; got x. Leave it out.",
        ),
    ],
)
def test_options_out_of_range_or_in_conflict_are_one_error(options, sentence):
    with pytest.raises(ConfigError) as error:
        generate(model_of("decoder", 1.0), torch.tensor([[1]]), 4, **options)
    assert str(error.value).startswith(sentence) and len(error.value.messages) == 1


def test_beam_search_does_not_stream():
    with pytest.raises(
        ConfigError, match=r"^beam: beam search has texts only at its end\. Call generate"
    ):
        stream(model_of("decoder", 1.0), torch.tensor([[1]]), 4, beam=2)
