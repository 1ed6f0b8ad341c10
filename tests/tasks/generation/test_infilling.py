"""Texts with holes: how they are written, how models fill them, and the sample of a run."""

import csv

import numpy as np
import pytest
import torch

from tasks.cli import main
from tasks.generation.infilling import split_at_holes, text_with_holes
from tasks.run.start import start_run
from xformer_kit import compose, load
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.objective import OBJECTIVES
from xformer_kit.registry import ConfigError

TINY = [
    "task_defaults=null",
    "model.dim=16",
    "model.layers=1",
    "attn.heads=2",
    "data=text",
    "tokenizer=byte",
    "data.seq_len=40",
    "data.batch_size=8",
    "trainer.max_steps=2",
    "schedule.warmup=1",
    "logger=none",
    "trainer.accelerator=cpu",
]
TASKS = {
    "masked_language_modeling": "encoder",
    "denoising": "encoder_decoder",
    "text_infilling": "encoder_decoder",
    "mixture_of_denoisers": "encoder_decoder",
}


def objective(task, tokenizer="byte", text=""):
    made = OBJECTIVES[task]()
    made.tokenizer = TOKENIZERS[tokenizer]()
    made.tokenizer.fit([text])
    made.tokenizer.specials = made.specials
    return made


def ids(made, *words):
    """Bytes of strings, and special tokens by name."""
    special = made.specials
    parts = [[made.tokenizer.special(w)] if w in special else list(w.encode()) for w in words]
    return np.array([i for part in parts for i in part])


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("masked_language_modeling", ["Thank ", "<mask>", " me", "<mask>"]),
        ("text_infilling", ["Thank ", "<mask>", " me", "<mask>"]),
        ("denoising", ["Thank ", "<extra_id_0>", " me", "<extra_id_1>"]),
        ("mixture_of_denoisers", ["[R]", "Thank ", "<extra_id_0>", " me", "<extra_id_1>"]),
    ],
)
def test_mask_marks_a_hole_for_every_task(task, expected):
    made = objective(task)
    opening, parts = split_at_holes(made, "Thank <mask> me<mask>", "--prompt")
    read = made.join_with_blanks(parts, *([opening] if hasattr(made, "holes") else []))
    assert read.tolist() == ids(made, *expected).tolist()
    assert text_with_holes(made, read).removeprefix("[R] ") == "Thank <mask> me<mask>"


def test_a_mixture_of_denoisers_uses_the_given_opening_or_the_default():
    made = objective("mixture_of_denoisers")
    for text, mode in (
        ("[X] a<mask>b", "[X]"),
        ("a<mask>b", "[R]"),
        ("a<mask>", "[S]"),
        ("<mask>a<mask>", "[R]"),
    ):
        opening, parts = split_at_holes(made, text, "--prompt")
        assert made.join_with_blanks(parts, opening)[0] == made.tokenizer.special(mode)


def test_the_space_before_a_mask_belongs_to_the_hidden_word():
    made = objective("masked_language_modeling", "word", "the cat sat on the mat")
    _, parts = split_at_holes(made, "the <mask> sat on <mask>", "--prompt")
    read = made.join_with_blanks(parts)
    assert text_with_holes(made, read) == "the <mask> sat on <mask>"
    whole = made.tokenizer.encode("the cat sat on mat").tolist()
    assert [i for i in read.tolist() if i < made.tokenizer.vocab_size] == [
        whole[0],
        whole[2],
        whole[3],
    ]


def test_spans_are_put_back_by_their_sentinels():
    made = objective("denoising")
    source = ids(made, "Thank ", "<extra_id_0>", " me to ", "<extra_id_1>", ".")
    said = ids(made, "lost", "<extra_id_0>", "you for inviting", "<extra_id_1>", "it")
    assert text_with_holes(made, made.restore(source, said)) == "Thank you for inviting me to it."
    swapped = ids(made, "<extra_id_1>", "it", "<extra_id_7>", "lost", "<extra_id_0>", "you")
    assert text_with_holes(made, made.restore(source, swapped)) == "Thank you me to it."
    assert (
        text_with_holes(made, made.restore(source, ids(made, "<extra_id_1>", "it")))
        == "Thank <mask> me to it."
    )


@pytest.mark.parametrize("task", [name for name in TASKS if name != "masked_language_modeling"])
def test_the_correct_target_restores_the_text(task):
    made, text = objective(task), "the cat sat on a mat and saw what it had not seen before"
    for seed in range(8):
        source, target = made.corrupt(ids(made, text), torch.Generator().manual_seed(seed))
        assert text_with_holes(made, made.restore(source, target)) == text


@pytest.mark.parametrize(
    ("task", "text", "sentence"),
    [
        (
            "masked_language_modeling",
            "a",
            (
                '--prompt: must have a <mask> where the model is to write; got none. Try "The'
                ' <mask> is".'
            ),
        ),
        (
            "masked_language_modeling",
            "<extra_id_0>",
            "--prompt: must have a <mask> where the model is to write; got none.",
        ),
        (
            "denoising",
            "<mask>" * 101,
            "--prompt: must have at most 100 holes: <mask>, or sentinels in order, 0 first; got 10",
        ),
        (
            "denoising",
            "<extra_id_1> a",
            "--prompt: must have at most 100 holes: <mask>, or sentinels in order, 0 first; got 1,",
        ),
    ],
)
def test_wrong_holes_are_one_sentence(task, text, sentence):
    with pytest.raises(ConfigError) as error:
        split_at_holes(objective(task), text, "--prompt")
    assert str(error.value).startswith(sentence)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, text):
    home, made = tmp_path_factory.mktemp("filling"), {}

    def train(task):
        if task not in made:
            words = [
                f"task={task}",
                f"model={TASKS[task]}",
                f"data.path={text}",
                f"data.cache={home}/cache",
            ]
            assert start_run(compose([*TINY, *words]), home / task) == 0
            made[task] = home / task
        return made[task]

    return train


def said(capfdbinary, *words):
    capfdbinary.readouterr()
    assert main([str(word) for word in words]) == 0
    return capfdbinary.readouterr().out.decode()


def test_a_masked_language_model_shows_the_likeliest_tokens(trained, capfdbinary):
    folder = trained("masked_language_modeling")
    out = said(capfdbinary, "generate", folder, "--prompt", "the c<mask>t", "--top-k", 3)
    model = load(folder)
    read = torch.tensor([[*b"the c", model.tokenizer.special("<mask>"), *b"t"]])
    with torch.no_grad():
        p, likely = model(read)[0, 5].softmax(-1)[:256].topk(3)
    filled = bytes([*b"the c", int(likely[0]), *b"t"]).decode("utf-8", "replace")
    assert out.startswith(filled + "\n\n<mask>\n")
    shares = [float(line.split("%")[0]) for line in out[len(filled) :].splitlines() if "%" in line]
    assert shares == pytest.approx((100 * p).tolist(), abs=0.01)


@pytest.mark.extended
@pytest.mark.parametrize("task", TASKS)
def test_lines_of_a_file_are_filled_line_by_line(trained, capfdbinary, tmp_path, task):
    (tmp_path / "in.txt").write_text("the <mask> sat\na <mask> and a <mask>\n")
    words = [
        "generate",
        trained(task),
        "--input",
        tmp_path / "in.txt",
        "--output",
        tmp_path / "out.txt",
    ]
    assert said(capfdbinary, *words) == ""
    lines = (tmp_path / "out.txt").read_text().split("\n")
    assert len(lines) == 3
    assert not lines[2]
    if task != "text_infilling":  # which writes the whole text itself
        assert lines[0].startswith("the ") and lines[0].endswith(" sat")


@pytest.mark.parametrize("task", TASKS)
def test_the_sample_of_a_run_is_a_text_with_holes_its_filling_and_the_original(trained, text, task):
    step, given, written, right = list(csv.reader((trained(task) / "samples.csv").open()))[-1]
    assert step == "2"
    assert "<mask>" in given
    assert right in text.read_text()
    assert written != right  # after two steps
    kept = given.removeprefix("[R] ").removeprefix("[S] ").removeprefix("[X] ").split("<mask>")
    assert right.startswith(kept[0]) and right.endswith(kept[-1])
