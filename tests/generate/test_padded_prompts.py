"""A prompt with padding anywhere but at its end goes on like the prompt without padding."""

import pytest
import torch

from xformer_kit.generate import generate

PROMPTS = [5, 9, 5, 9, 5], [7, 3], [2, 8, 4, 2]
GAPS = (1, 4), (0, 1, 2, 4, 5), (2, 3, 5)  # indices of padding in each row
LENGTH, NEW = 7, 8


def padded():
    """The prompts with padding of any ids, and where they are real."""
    real = torch.ones(3, LENGTH, dtype=torch.bool)
    ids = torch.full((3, LENGTH), 6)
    for row, (prompt, gaps) in enumerate(zip(PROMPTS, GAPS, strict=True)):
        real[row, list(gaps)] = False
        ids[row, real[row]] = torch.tensor(prompt)
    return ids, real


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 0.0, "no_repeat_ngram": 2, "repetition_penalty": 1.3},
        {"beam": 3, "no_repeat_ngram": 2},
        {"penalty_alpha": 0.6, "top_k": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "parts",
    [
        ["mask=causal", "position=learned"],
        ["mask=sliding_window", "mask.window=2"],
        [
            "model.layers=2",
            "model.decoder.pattern=[base,near]",
            "model.decoder.variants.near={mask:{name:strided,stride:2}}",
        ],
    ],
    ids=" ".join,
)
@torch.no_grad()
def test_a_prompt_goes_on_as_without_padding(small, parts, options):
    model, (ids, real) = small("decoder", 11, 15, 2.0, *parts), padded()
    found = generate(model, ids, NEW, real=real, **options)
    assert torch.equal(found[:, :LENGTH], ids)
    for row, prompt in zip(found, PROMPTS, strict=True):
        expected = generate(model, torch.tensor([prompt]), NEW, **options)[0]
        assert row[LENGTH:].tolist() == expected[len(prompt) :].tolist()
