"""What a run prints before it trains, and the commands after it."""

import json
import re
import shlex
import sys

import pytest

from tasks.logging import summary
from tasks.modules.evaluation import Sample
from tasks.run.checks import data_notes, mask_notes, schedule_notes
from tasks.run.start import start_run
from tests.data.tokenizer.tokenizer_forms import built
from tests.user_components import forget_user_components
from xformer_kit import compose, load
from xformer_kit.attention import ATTENTIONS
from xformer_kit.data import prepare
from xformer_kit.files.saved_files import read_columns
from xformer_kit.study.numbers import compact
from xformer_kit.study.run_key import run_key


def test_a_tokenizer_with_fewer_tokens_than_requested_is_reported(begin):
    code, folder = begin("few", "trainer.max_steps=1", "tokenizer=bpe", "tokenizer.vocab_size=5000")
    assert code == 0
    [line] = [
        line
        for line in (folder / "train.log").read_text().splitlines()
        if "tokenizer.vocab_size" in line
    ]
    assert "tokenizer.vocab_size: 5,000 tokens were asked for, and the text gave " in line


def test_a_tokenizer_with_all_requested_tokens_is_not_reported(begin):
    code, folder = begin("all", "trainer.max_steps=1", "tokenizer=bpe", "tokenizer.vocab_size=260")
    assert code == 0
    assert "asked for" not in (folder / "train.log").read_text()


@pytest.mark.extended
def test_a_warm_up_that_is_not_shorter_than_the_run_is_shortened_with_a_note(config, tmp_path):
    run_config = config("trainer.max_steps=20", "trainer.val_every=20")
    run_config["schedule"]["warmup"] = 20  # as a default or an experiment has it
    assert start_run(run_config, tmp_path / "short", quiet=True) == 0
    sentence = (
        "schedule.warmup: 20 steps are not fewer than the 20 of the run, so the warm-up is"
        " shortened to a tenth of the run, 2 steps."
    )
    assert sentence in (tmp_path / "short" / "train.log").read_text()
    rates = read_columns(tmp_path / "short" / "metrics.csv")["lr"]
    assert max(rates[1]) == run_config["optim"]["lr"]
    assert start_run(config("trainer.max_steps=20"), tmp_path / "none", quiet=True) == 0
    assert "shortened" not in (tmp_path / "none" / "train.log").read_text()


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["schedule=wsd", "schedule.warmup=2", "schedule.decay=0.8"], []),
        (["schedule=wsd", "schedule.warmup=6", "schedule.decay=0.5"], ["the decay would begin"]),
        (["schedule=cosine", "schedule.warmup=6"], []),
        (["schedule=constant", "optim=schedule_free"], []),
        (
            ["schedule=cosine", "schedule.warmup=2", "optim=schedule_free"],
            ["for schedule=constant"],
        ),
    ],
)
def test_notes_on_schedules_of_ten_steps(words, lines):
    found = list(schedule_notes(compose(words, data=False), 10))
    assert len(found) == len(lines) and all(map(str.__contains__, found, lines)), found


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["mask=sliding_window", "mask.window=16"], ["16 tokens is not shorter than the 16"]),
        (["mask=sliding_window", "mask.window=15"], []),
        (["mask=sliding_window", "mask.window=16", "data.valid_len=20", "model.max_len=20"], []),
        (["mask=causal"], []),
        (
            [
                "model.decoder.pattern=[base,far]",
                "model.decoder.variants.far={mask: {name: sliding_window, window: 99}}",
            ],
            ["99 tokens is not shorter than the 16 of an example (data.seq_len)"],
        ),
    ],
    ids=str,
)
def test_a_window_that_hides_nothing_is_reported(config, words, lines):
    found = list(mask_notes(config(*words)))
    assert len(found) == len(lines)
    for note, line in zip(found, lines, strict=True):
        assert line in note and note.endswith("so the mask has the effect of 'causal'.")


@pytest.mark.extended
@pytest.mark.parametrize("quiet", [False, True])
def test_validation_examples_that_are_in_training_are_reported_and_counted(
    config, tmp_path, capsys, quiet
):
    for name, numbers in (("train", range(40)), ("valid", range(37, 60))):
        lines = (json.dumps({"text": f"document {i}"}) + "\n" for i in numbers)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    words = [
        f"data.{o}={tmp_path}/{name}.jsonl"
        for o, name in (("path", "train"), ("valid_path", "valid"))
    ]
    for name in ("new", "cached"):
        run_config = config("trainer.max_steps=1", "data=jsonl", "data.text=text", *words)
        assert start_run(run_config, tmp_path / name, quiet=quiet) == 0
        sentence = (
            "data: 3 of the 23 documents of valid are in training too: its figures are better than"
            " on new data. Leave them out of one of the two."
        )
        assert sentence in (tmp_path / name / "train.log").read_text()
        assert capsys.readouterr().err.splitlines().count(sentence) == (not quiet)
        assert summary.read(tmp_path / name)["examples_in_training"] == {"valid": 3}


def test_the_first_line_names_model_data_and_directory(begin, capsys):
    code, folder = begin("said", "trainer.max_steps=1")
    parameters = sum(w.numel() for w in load(folder).parameters())
    first = capsys.readouterr().err.splitlines()[0]
    assert code == 0
    assert re.fullmatch(
        rf"decoder, {compact(parameters)} parameters, text: [\d,]+ examples of 16 tokens,"
        rf" 1 step \(128 tokens, 0\.\d+ epochs\); {folder}",
        first,
    )


def test_a_quiet_run_does_not_print_its_description(config, tmp_path, capsys):
    assert start_run(config("trainer.max_steps=1"), tmp_path / "quiet", quiet=True) == 0
    assert "parameters" not in capsys.readouterr().err


def test_the_activation_command_is_shown_if_the_environment_is_not_active(tmp_path, monkeypatch):
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setenv("PATH", "/usr/bin")
    assert summary.activation_commands() == []  # there is nothing to activate
    (tmp_path / ".venv" / "bin" / "activate").touch()
    assert summary.activation_commands() == ["source .venv/bin/activate"]
    monkeypatch.setenv("PATH", f"{tmp_path}/.venv/bin:/usr/bin")
    assert summary.activation_commands() == []


def test_a_prompt_is_proposed_if_it_can_be_typed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()

    def proposed_prompts(sample):
        found = summary.next_commands({"task": "language_modeling"}, tmp_path, sample)
        return [shlex.split(line)[-1] for line in found if "generate" in line]

    assert proposed_prompts(Sample("The cat", " sat")) == ["The "]  # of a text
    assert proposed_prompts(Sample("w3 w0 |", "w3 w0", "w3 w0")) == ["w3 w0 |"]  # of an answer
    assert proposed_prompts(Sample("w3 " * 200 + "|", "w3", "w3")) == []
    assert proposed_prompts(None) == ["The "]


def test_a_run_that_differs_from_its_studys_plan_does_not_train(config, tmp_path, capsys):
    composed, other = config("trainer.max_steps=1"), config("trainer.max_steps=1", "optim.lr=0.5")
    key = run_key(composed, prepare(composed).fingerprint)
    same = config("trainer.max_steps=1", "trainer.log_every_n_steps=7")
    assert start_run(same, tmp_path / "same", key=key) == 0
    assert start_run(other, tmp_path / "other", key=key) == 2
    assert f"study: this run was planned as {key} and is " in capsys.readouterr().err
    assert not (tmp_path / "other" / "summary.json").exists()


def test_a_refused_run_leaves_no_empty_directories(config, tmp_path):
    made, outputs = config("checkpoints.metric=val/accuracy"), tmp_path / "outputs"
    assert start_run(made, outputs / "decoder" / "a") == 2
    assert not outputs.exists()
    (outputs / "decoder" / "b").mkdir(parents=True)
    assert start_run(made, outputs / "decoder" / "a") == 2
    assert [*outputs.rglob("*")] == [outputs / "decoder", outputs / "decoder" / "b"]


TAKEN = """
import torch
from xformer_kit.attention import ATTENTIONS, EIGHT_HEADS, HeadShape, MultiHead


@ATTENTIONS.register("taken")
class Taken(MultiHead):
    def __init__(self, dim, norm, kernel, *, shape: HeadShape = EIGHT_HEADS):
        super().__init__(dim, norm, kernel, shape=shape)
        self.scale = torch.nn.Parameter(torch.ones(()))
"""


def test_an_exception_in_the_constructor_of_an_own_component_is_one_sentence(
    config, tmp_path, capsys
):
    file = tmp_path / "taken.py"
    file.write_text(TAKEN)
    try:
        made = config(f"components=[{file}]", "attn=taken", "attn.heads=2")
        assert start_run(made, tmp_path / "run", (str(file),)) == 2
    finally:
        forget_user_components([ATTENTIONS])
    assert capsys.readouterr().err.splitlines()[-1] == (
        "attn: Taken must not raise an exception; got KeyError: \"attribute 'scale' already"
        f" exists\". See line 10 of '{file}'."
    )
    assert not (tmp_path / "run").exists()


def test_what_a_tokenizer_drops_and_cannot_decode_is_printed(tmp_path):
    text = "Is there a café? " * 40
    letters = {name: i for i, name in enumerate(sorted({*text} - {*" é"}))}
    model = {"type": "BPE", "vocab": letters, "merges": []}
    file = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    file |= {"version": "1.0", "added_tokens": [], "model": model}
    file["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    (tmp_path / "mine.json").write_text(json.dumps(file))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    data = {"name": "text", "path": str(tmp_path / "text.txt"), "cache": str(tmp_path / "cache")}
    tokenizer = {"name": "pretrained", "path": str(tmp_path / "mine.json")}
    config = {"data": data | {"seq_len": 8, "valid": 0.25}, "tokenizer": tokenizer}
    assert list(data_notes(config, prepare(config)))[:2] == [
        "tokenizer.path: the file cannot be decoded: it has no decoder, and its pre-tokenizer"
        " removes what separates the words. Texts are shown as tokens with spaces between them.",
        "tokenizer: it drops characters that it has no token for: 30 of train, 10 of valid. The"
        " model does not read them; bits per byte count them.",
    ]


def test_a_decoder_that_does_not_fit_is_printed(tmp_path):
    file = json.loads(built("gpt2").to_str()) | {"decoder": {"type": "Fuse"}}
    (tmp_path / "mine.json").write_text(json.dumps(file))
    (tmp_path / "text.txt").write_text("the words " * 40, encoding="utf-8")
    data = {"name": "text", "path": str(tmp_path / "text.txt"), "cache": str(tmp_path / "cache")}
    tokenizer = {"name": "pretrained", "path": str(tmp_path / "mine.json")}
    config = {"data": data | {"seq_len": 8, "valid": 0.25}, "tokenizer": tokenizer}
    assert list(data_notes(config, prepare(config)))[:1] == [
        "tokenizer.path: the decoder of the file does not fit its other parts: ' the words' is"
        " shown as '\u0120the\u0120words', which has other letters or tokens."
    ]


@pytest.mark.parametrize(
    ("words", "both"),
    [
        (["mask=causal"], "mask=full"),
        (["mask={name: sliding_window, window: 4}"], "mask.causal=false"),
        (["mask={name: sliding_window, window: 4, causal: false}"], None),
        ([], None),
    ],
)
def test_a_masked_language_model_that_sees_one_side_only_has_a_note(config, words, both):
    found = list(mask_notes(config("task=masked_language_modeling", "model=encoder", *words)))
    start = "mask: a masked token is predicted from the tokens on its left only; "
    assert found == ([] if both is None else [f"{start}{both} adds those on its right."])


def test_adapters_of_random_weights_are_reported(begin):
    sentence = "lora.rank: the adapters are trained on random weights, which are frozen; init_from"
    _, base = begin("base", "trainer.max_steps=1", "lora.rank=2")
    assert sentence in (base / "train.log").read_text()
    _, run = begin("run", "trainer.max_steps=1", "lora.rank=2", f"init_from={base}")
    assert sentence not in (run / "train.log").read_text()
