"""Contrastive search: equation 5 of its paper, computed by a model without a cache."""

import pytest
import torch
from torch.nn.functional import cosine_similarity

from xformer_kit import ConfigError
from xformer_kit.generate import generate, stream
from xformer_kit.tensors.tokens import Tokens

PROMPTS = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 7, 0]])


@torch.no_grad()
def by_hand(model, ids, new, k, alpha, source=None, prefix=False):
    """One row (t,), every token from the whole text: (1 - alpha) p(v | x) - alpha max_j cos(h_v,
    h_xj).
    """
    given = len(ids) if prefix else 0

    def read(texts):
        tokens = Tokens(ids=texts, prefix=torch.arange(texts.shape[1])[None] < given)
        encoded = None if source is None else Tokens(ids=source.expand(len(texts), -1))
        return model.hidden(tokens, source=encoded)[0]  # (b, t, dim)

    for _ in range(new):
        (hidden,) = read(ids[None])
        p = model.head(hidden[-1][None, None])[0, 0].softmax(-1)
        values = {}
        likely = p.topk(k).indices
        hidden_after = read(torch.cat([ids.expand(k, -1), likely[:, None]], 1))[:, -1]
        for v, h in zip(likely, hidden_after, strict=True):
            like = cosine_similarity(h[None], hidden).max()
            values[int(v)] = float((1 - alpha) * p[v] - alpha * like)
        ids = torch.cat([ids, torch.tensor([max(values, key=values.get)])])
    return ids.tolist()


@pytest.mark.parametrize(("k", "alpha"), [(4, 0.6), (3, 0.3), (11, 0.9), (5, 1.0)])
@pytest.mark.parametrize(
    "parts",
    [
        [],
        ["position=alibi"],
        ["mask=sliding_window", "mask.window=3"],
        ["position=learned", "attn.kv_heads=1", "placement=post"],
    ],
    ids=" ".join,
)
def test_it_is_the_equation(small, k, alpha, parts):
    model = small("decoder", 11, 15, 1.0, *parts).double()
    found = generate(model, PROMPTS, 12, top_k=k, penalty_alpha=alpha)
    assert found.tolist() == [by_hand(model, row, 12, k, alpha) for row in PROMPTS]
    assert found.tolist() != generate(model, PROMPTS, 12, temperature=0.0).tolist()


def test_it_is_the_equation_after_a_prefix(small):
    model = small("decoder", 11, 15, 1.0, "mask=prefix", "task=prefix_language_modeling").double()
    found = generate(model, PROMPTS, 12, top_k=4, penalty_alpha=0.6)
    assert found.tolist() == [by_hand(model, row, 12, 4, 0.6, prefix=True) for row in PROMPTS]


def test_it_is_the_equation_with_two_stacks(small):
    model = small("encoder_decoder", 11, 15, 1.0).double()
    source, real = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
    found = generate(
        model,
        source=source,
        source_real=real,
        start=9,
        max_new_tokens=15,
        top_k=4,
        penalty_alpha=0.6,
    ).tolist()
    start = torch.tensor([9])
    assert found[0] == by_hand(model, start, 15, 4, 0.6, source[0])
    assert found[1] == by_hand(model, start, 15, 4, 0.6, source[1, :2])


def test_prompts_of_different_lengths_continue_as_each_by_itself(small):
    model = small(scale=1.0).double()
    ids = torch.tensor([[0, 0, 3, 1, 4], [2, 7, 1, 8, 2], [0, 0, 0, 0, 5]])
    real = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]]).bool()
    found = generate(model, ids, 40, real=real, top_k=5, penalty_alpha=0.6)
    for row, (text, given) in enumerate(zip(ids, real, strict=True)):
        assert (
            found[row, 5:].tolist() == by_hand(model, text[given], 40, 5, 0.6)[int(given.sum()) :]
        )


def test_no_weight_or_no_choice_is_greedy(small):
    model = small()
    greedy = generate(model, PROMPTS, 40, temperature=0.0).tolist()
    assert generate(model, PROMPTS, 40, top_k=5, penalty_alpha=0.0).tolist() == greedy
    assert generate(model, PROMPTS, 40, top_k=1, penalty_alpha=0.9).tolist() == greedy
    assert generate(model, PROMPTS, 40, top_k=500, penalty_alpha=0.0).tolist() == greedy


def test_rows_end_constraints_hold_and_the_stream_is_the_text(small):
    model, how = small(scale=1.0), {"top_k": 6, "penalty_alpha": 0.8}
    free = generate(model, PROMPTS, 20, **how)
    end = int(free[0, 6])
    found = generate(model, PROMPTS, 20, end=end, **how)
    for row, text in enumerate(found[:, 3:].tolist()):
        at = text.index(end) if end in text else len(text)
        assert text[:at] == free[row, 3 : at + 3].tolist()
        assert set(text[at:]) <= {end}
    assert torch.stack(list(stream(model, PROMPTS, 20, **how)), 1).tolist() == free[:, 3:].tolist()
    listed = generate(model, PROMPTS, 30, allowed=[2, 5], **how)[
        :, 3:
    ]  # fewer than there are candidates
    assert set(listed.unique().tolist()) == {2, 5}
    late = generate(model, PROMPTS, 20, end=end, min_new_tokens=15, **how)
    assert end not in late[:, 3:17].unique().tolist()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"top_k": None},
            ("penalty_alpha: chooses among the top_k likeliest tokens; got no top_k. Try top_k=4."),
        ),
        (
            {"penalty_alpha": 1.5},
            "penalty_alpha: must be at most 1; got 1.5.",
        ),
        (
            {"beam": 4},
            "beam: has no effect with penalty_alpha=0.6; got 4. Leave it out.",
        ),
        *(
            (
                {name: value},
                f"{name}: has no effect with penalty_alpha=0.6; got {value}. Leave it out.",
            )
            for name, value in (("temperature", 0.7), ("temperature", 0.0), ("top_p", 0.9))
        ),
        (
            {"num_return": 2},
            "num_return: must be at most beam, which is 1 by default, for texts that are not"
            " drawn; got 2 and 1. Try beam=2, or temperature=1.",
        ),
        (
            {"draft": True},
            "draft: has no effect with penalty_alpha=0.6. Leave it out.",
        ),
    ],
    ids=str,
)
def test_conflicting_options_are_one_error(small, options, sentence):
    if "draft" in options:
        options = {"draft": small()}
    with pytest.raises(ConfigError) as error:
        generate(small(), PROMPTS, 4, **({"top_k": 4, "penalty_alpha": 0.6} | options))
    assert str(error.value) == sentence
