"""Greedy decoding is the argmax of the uncached model, filters keep the expected tokens, and draws
follow the distribution.
"""

import pytest
import torch

from xformer_kit import ConfigError, build, compose
from xformer_kit.generate import choose, generate, stream
from xformer_kit.tensors.tokens import Tokens

SMALL = ["model.dim=24", "model.layers=2", "attn.heads=3", "data.seq_len=32"]


@pytest.fixture(scope="module")
def model():
    model = build(compose(SMALL), vocab_size=17)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(5)  # clear gaps between the logits
    return model.eval()


def test_greedy_is_the_argmax_of_the_uncached_model(model):
    ids = torch.arange(10).view(2, 5)
    out = generate(model, ids, max_new_tokens=9, temperature=0.0)
    assert out.shape == (2, 14)
    assert out[:, :5].tolist() == ids.tolist()
    for t in range(5, 14):
        assert out[:, t].tolist() == model(out[:, :t])[:, -1].argmax(-1).tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "repetition_penalty": 1.5},
        {"temperature": 0.0, "no_repeat_ngram": 2},
        {"beam": 3, "no_repeat_ngram": 2},
        {"top_k": 4, "penalty_alpha": 0.6},
        {"top_k": 4, "penalty_alpha": 0.6, "no_repeat_ngram": 1, "repetition_penalty": 1.3},
    ],
    ids=str,
)
def test_a_left_padded_prompt_continues_like_the_unpadded_one(model, options):
    """With each id of the vocabulary at its padding."""
    ids = torch.tensor([[at, at, 3, 1, 4] for at in range(17)])
    real = torch.tensor([[False, False, True, True, True]]).expand(17, -1)
    padded = generate(model, ids, max_new_tokens=6, real=real, **options)
    bare = generate(model, ids[:1, 2:], max_new_tokens=6, **options)
    assert padded[:, 5:].tolist() == bare[:, 3:].tolist() * 17


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_of_several_texts_of_a_prompt_has_its_own_constraints(model, count):
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    out = generate(model, ids, 9, seed=0, num_return=count, no_repeat_ngram=1)
    texts = out.reshape(2 * count, 12).tolist()
    assert [text[:3] for text in texts] == [row for row in ids.tolist() for _ in range(count)]
    assert all(len({*text}) == 12 for text in texts) and len({*map(tuple, texts)}) == 2 * count


def test_one_seed_gives_one_text_and_the_stream_is_the_text(model):
    ids = torch.tensor([[1, 2, 3]])
    a, b, c = (generate(model, ids, max_new_tokens=20, seed=s) for s in (1, 1, 2))
    assert a.tolist() == b.tolist() != c.tolist()
    assert [int(t) for t in stream(model, ids, 20, seed=1)] == a[0, 3:].tolist()


def test_draws_follow_the_distribution():
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    drawn = choose(p.log().expand(20_000, 4), generator=torch.Generator().manual_seed(0))
    share = torch.bincount(drawn, minlength=4) / 20_000
    chi2 = (20_000 * (share - p) ** 2 / p).sum().item()
    assert chi2 < 16.27  # 3 degrees of freedom, p = 0.001


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_p": 0.5}, {0}),
        ({"top_p": 0.51}, {0, 1}),
        ({"top_p": 1.0}, {0, 1, 2, 3}),
        ({"top_k": 9}, {0, 1, 2, 3}),
        ({"temperature": 0.0}, {0}),
    ],
)
def test_filters_keep_the_expected_tokens(options, kept):
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().expand(2_000, 4)
    assert (
        set(choose(logits, generator=torch.Generator().manual_seed(0), **options).tolist()) == kept
    )


def test_dropout_is_off_during_generation_and_on_again_after_it():
    model = build(compose([*SMALL, "model.dropout=0.5"]), vocab_size=17).train()
    ids = torch.tensor([[1, 2, 3]])
    assert (
        generate(model, ids, 8, temperature=0.0).tolist()
        == generate(model, ids, 8, temperature=0.0).tolist()
    )
    assert model.training


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens: must be at least 1; got 0."),
        (
            {"max_new_tokens": 1, "temperature": -1},
            "temperature: must be at least 0; got -1.",
        ),
        (
            {"max_new_tokens": 1, "top_k": 0},
            "top_k: must be above 0; got 0. Leave it out to draw from all tokens.",
        ),
        ({"max_new_tokens": 1, "top_p": 0.0}, "top_p: must be above 0 and at most 1; got 0.0."),
    ],
)
def test_options_out_of_range_are_one_error(model, options, sentence):
    with pytest.raises(ConfigError) as error:
        generate(model, torch.tensor([[1]]), **options)
    assert str(error.value) == sentence


def test_more_tokens_than_a_learned_position_supports_are_refused():
    model = build(compose([*SMALL, "position=learned"]), vocab_size=17)
    generate(model, torch.tensor([[1, 2, 3]]), 29)
    with pytest.raises(ConfigError) as error:
        generate(model, torch.tensor([[1, 2, 3]]), 30)
    assert (
        str(error.value)
        == "max_new_tokens: the model's positions end at 32 tokens (model.max_len), the prompt has"
        " 3; got 30. Give at most 29."
    )


def test_greedy_with_two_stacks_is_the_argmax_of_the_uncached_model(small):
    model = small("encoder_decoder")
    source, real = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
    out = generate(
        model, source=source, source_real=real, start=9, max_new_tokens=12, temperature=0.0
    )
    assert out[:, 0].tolist() == [9, 9] and out.shape == (2, 13)
    logits = model(source=source, source_real=real, target=out[:, :-1])
    assert out[:, 1:].tolist() == logits.argmax(-1).tolist()


def test_the_source_is_encoded_once_for_all_options(small, monkeypatch):
    model, calls = small("encoder_decoder"), []
    encode = model.encode
    monkeypatch.setattr(
        model, "encode", lambda source: calls.append(source.ids.shape) or encode(source)
    )
    given = {"source": torch.tensor([[1, 2, 3], [4, 5, 6]]), "start": 9, "max_new_tokens": 5}
    generate(model, **given)
    generate(model, **given, num_return=3)
    generate(model, **given, beam=4)
    assert calls == [(2, 3)] * 3


def test_the_first_tokens_of_a_target_may_be_given(small):
    model, source = small("encoder_decoder"), torch.tensor([[1, 2, 3]])
    whole = generate(model, source=source, start=9, max_new_tokens=8, temperature=0.0)
    assert (
        generate(model, whole[:, :4], 5, source=source, temperature=0.0).tolist() == whole.tolist()
    )


def test_ended_rows_are_filled_and_the_last_end_stops_generation(small):
    model, ids = small(), torch.arange(11)[:, None]
    free = generate(model, ids, 20, temperature=0.0)
    end = int(free[0, 5])  # some rows come to it, at different times
    out = generate(model, ids, 20, temperature=0.0, end=end)
    for row, text in enumerate(out[:, 1:].tolist()):
        at = text.index(end) if end in text else len(text)
        assert text[:at] == free[row, 1 : at + 1].tolist() and set(text[at:]) <= {end}
    single = generate(model, ids[:1], 20, temperature=0.0, end=end)
    assert single[0, -1] == end and end not in single[0, 1:-1].tolist() and single.shape[1] < 21


def test_seeds_of_rows_draw_the_same_next_to_other_rows(small):
    model, ids = small(), torch.tensor([[1, 2], [3, 4], [1, 2]])
    together = generate(model, ids, 12, seed=[5, 6, 7])
    for row, seed in enumerate((5, 6, 7)):
        assert (
            generate(model, ids[row : row + 1], 12, seed=seed).tolist()
            == together[row : row + 1].tolist()
        )
    assert (
        generate(model, ids[:1], 12, num_return=2, seed=[5, 7])[:, 2:].tolist()
        == together[[0, 2], 2:].tolist()
    )


def test_texts_of_one_prompt_follow_each_other(small):
    out = generate(small(), torch.tensor([[1, 2], [3, 4]]), 6, num_return=3, seed=0)
    assert out[:, :2].tolist() == [[1, 2]] * 3 + [[3, 4]] * 3
    assert len({tuple(text) for text in out.tolist()}) > 2


class Letters:
    """A tokenizer whose id i is the letter i, one byte each."""

    def stream(self):
        return lambda i: "abcdefghijk"[i]


def test_a_text_stops_after_a_stop_text(small, monkeypatch):
    model = small()
    monkeypatch.setattr(model, "tokenizer", Letters(), raising=False)
    free = generate(model, torch.tensor([[1]]), 20, temperature=0.0)[0, 1:].tolist()
    word = "".join("abcdefghijk"[i] for i in free[4:6])
    at = "".join("abcdefghijk"[i] for i in free).index(word) + 2
    for stop in (word, ["zz", word]):
        assert (
            generate(model, torch.tensor([[1]]), 20, temperature=0.0, stop=stop)[0, 1:].tolist()
            == free[:at]
        )
    rows = generate(model, torch.tensor([[1], [1], [6]]), 20, temperature=0.0, stop=word, end=10)
    assert rows[0, 1 : at + 1].tolist() == free[:at] and set(rows[0, at + 1 :].tolist()) <= {10}


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.0}, {"top_k": 3}, {"beam": 2}, {"penalty_alpha": 0.5, "top_k": 3}],
    ids=str,
)
def test_a_model_that_has_diverged_is_reported(small, options):
    model = small()
    torch.nn.init.constant_(model.embed.weight, torch.nan)
    with pytest.raises(ConfigError, match=r"^model: the scores of the next token are not finite"):
        generate(model, torch.tensor([[1, 2]]), 4, **options)


def test_only_allowed_ids_are_generated(small):
    ids = torch.tensor([[1, 2], [3, 4]])
    assert set(generate(small(), ids, 30, allowed=[2, 5], seed=0)[:, 2:].unique().tolist()) == {
        2,
        5,
    }
    step = generate(
        small(), ids, 6, allowed=lambda row, text: [(int(text[-1]) + row + 1) % 11], seed=0
    )
    assert step.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8], [3, 4, 6, 8, 10, 1, 3, 5]]


def test_a_consumer_of_the_stream_is_not_in_inference_mode(small):
    for _ in stream(small(), torch.tensor([[1]]), 2):
        assert not torch.is_inference_mode_enabled()


def test_a_prompt_is_the_prefix_of_what_is_generated(small):
    model = small("decoder", 11, 15, 2.0, "mask=prefix", "task=prefix_language_modeling")
    ids = torch.tensor([[1, 2, 3]])
    out = generate(model, ids, 6, temperature=0.0)
    for t in range(3, 9):
        tokens = Tokens(ids=out[:, :t], prefix=torch.arange(t)[None] < 3)
        assert model.head(model.hidden(tokens)[0])[0, -1].argmax() == out[0, t]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"top_k": 1.5}, "top_k: must be a whole number or null; got 1.5."),
        ({"tpo_k": 1}, "tpo_k: decoding has no such option. Did you mean 'top_k'? It has: "),
        ({"min_p": 2.0}, "min_p: must be at most 1; got 2.0."),
        ({"typical_p": 1.0}, "typical_p: must be above 0 and below 1; got 1.0."),
        (
            {"typical_p": 0.5, "temperature": 0.0},
            "typical_p: has no effect with temperature=0; got 0.5. Leave it out.",
        ),
        (
            {"repetition_penalty": 0.0},
            "repetition_penalty: must be at least 0.001; got 0.0.",
        ),
        ({"no_repeat_ngram": 0}, "no_repeat_ngram: must be at least 1; got 0."),
        ({"min_new_tokens": 2}, "min_new_tokens: puts off `end`, and there is none. Give end"),
        (
            {"min_new_tokens": 9, "end": 1},
            "min_new_tokens: must be at least 0 and at most max_new_tokens; got 9 and 4.",
        ),
        ({"end": 11}, "end: must be an id of the vocabulary, 0 to 10; got 11."),
        ({"allowed": []}, "allowed: must list at least one id besides end; got []."),
        ({"allowed": [3, 40]}, "allowed: must list ids of the vocabulary, 0 to 10; got 40."),
        ({"seed": [1, 2]}, "seed: must be one number, or one for each of 1 rows; got 2."),
        ({"seed": -1}, "seed: must be at least 0 and below 2^63; got -1."),
        (
            {"num_return": 2, "temperature": 0.0},
            "num_return: must be at most beam, which is 1 by default, for texts that are not drawn;"
            " got 2 and 1. Try beam=2, or temperature=1.",
        ),
        ({"ahead": 3}, "ahead: has no effect without draft; got 3. Leave it out."),
        ({"stop": "a"}, "stop: texts need model.tokenizer, and the model has none"),
        ({"stop": ""}, "stop: must be texts of at least one character; got an empty one."),
        (
            {"source": torch.tensor([[1]])},
            "source: must be given to a model with an encoder, and only to such a model. Call",
        ),
        ({"ids": torch.tensor([[11]])}, "prompt: must be ids of the vocabulary, 0 to 10; got 11."),
        (
            {"ids": torch.tensor([1])},
            (
                "prompt: must be a tensor of ids (batch, tokens) with at least one token; got (1,)"
                " of torch.int64. Try torch.tensor([[1, 2]])."
            ),
        ),
        (
            {"ids": None},
            "prompt: there is none. Give a prompt, ids (batch, tokens), or start, the first token.",
        ),
        (
            {"real": torch.tensor([[False]])},
            "real: must be True at the end of every row. Pad prompts on the left.",
        ),
        (
            {"real": torch.ones(1, 2).bool()},
            "real: must be a tensor (1, 1) of bool; got (1, 2) of torch.bool.",
        ),
    ],
    ids=str,
)
def test_conflicting_options_are_one_error(small, options, sentence):
    with pytest.raises(ConfigError) as error:
        generate(small(), **({"ids": torch.tensor([[1]]), "max_new_tokens": 4} | options))
    assert str(error.value).startswith(sentence) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (
            "encoder_decoder",
            {"start": 9},
            "source: must be given to a model with an encoder, and only to such a model. Call",
        ),
        (
            "encoder_decoder",
            {"source": torch.tensor([[1]])},
            "prompt: there is none. Give a prompt, ids (batch, tokens), or start, the first token.",
        ),
        (
            "encoder_decoder",
            {"source": torch.tensor([[1], [2]]), "ids": torch.tensor([[1]])},
            "source: must have a row for each prompt; got 2 rows and 1 prompts.",
        ),
        (
            "encoder_decoder",
            {"source": torch.tensor([[12]]), "start": 9},
            "source: must be ids of the vocabulary, 0 to 10;",
        ),
    ],
)
def test_inputs_that_a_model_cannot_read_are_one_error(small, kind, options, sentence):
    with pytest.raises(ConfigError) as error:
        generate(small(kind), max_new_tokens=4, **options)
    assert str(error.value).startswith(sentence)


def test_an_encoder_without_a_decoder_does_not_generate():
    model = build(
        compose(["model=encoder", "task=masked_language_modeling", *SMALL]), vocab_size=11
    )
    with pytest.raises(
        ConfigError,
        match=r"^model: a mask sees the future, so the model does not predict the next token\.",
    ):
        generate(model, torch.tensor([[1]]))


def test_all_faults_are_reported_at_once(small):
    with pytest.raises(ConfigError) as error:
        generate(small(), torch.tensor([[1]]), 4, top_k=0, top_p=2.0, beam=0)
    assert len(error.value.messages) == 5  # three values, and two that a beam has no use for
