"""Every task trains, is evaluated and resumes bit for bit; accumulation 4 is equal to one batch."""

import json
import shlex

import pytest
import torch

from tasks.run.resume import resume_run
from tasks.run.start import start_run
from xformer_kit import compose

pytestmark = pytest.mark.extended

SMALL = [
    "model.dim=16",
    "model.layers=1",
    "attn.heads=2",
    "data.batch_size=8",
    "trainer.max_steps=8",
    "trainer.log_every_n_steps=1",
    "trainer.val_every=4",
    "trainer.checkpoint_every=2",
    "schedule.warmup=2",
    "logger=none",
    "trainer.accelerator=cpu",
    "trainer.limit_val_batches=4",
]
TEXT = ["data=text", "tokenizer=byte", "data.seq_len=16"]
DOCUMENTS = [
    "data=jsonl",
    "data.text=text",
    "data.valid=0.2",
    "data.documents=true",
    "tokenizer=byte",
    "data.seq_len=16",
]
PAIRS = ["data=tsv", "tokenizer=char", "data.seq_len=12", "task.decoded=8"]
KINDS = {
    "translation": ["task=seq2seq", "model=encoder_decoder", *PAIRS],
    "translation by a decoder": ["task=seq2seq", "model=decoder", "mask=prefix", *PAIRS],
    "token batches": ["task=seq2seq", "model=encoder_decoder", *PAIRS, "data.batch_tokens=128"],
    "masks": ["task=masked_language_modeling", "model=encoder", *TEXT],
    "spans": ["task=denoising", "model=encoder_decoder", *TEXT],
    "infilling": ["task=text_infilling", "model=encoder_decoder", *TEXT],
    "a mixture": ["task=mixture_of_denoisers", "model=encoder_decoder", *TEXT],
    "prefixes": ["task=prefix_language_modeling", "model=decoder", "mask=prefix", *TEXT],
    "a probe": ["task=language_modeling", "model=decoder", "data=copy", "data.seq_len=64"],
    "future tokens": [
        "task=language_modeling",
        "model=decoder",
        "extra.future_tokens.count=3",
        *DOCUMENTS,
    ],
    "future answers": [
        "task=language_modeling",
        "model=decoder",
        "extra.future_tokens.count=3",
        "data=copy",
        "data.seq_len=64",
    ],
}


@pytest.fixture
def start(text, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{a}{b}\t{b}{a}\n" for a in "abcdefgh" for b in "ijklmnopqrst"))

    documents = (
        tmp_path / "documents.jsonl"
    )  # of 1 to 40 bytes, so that windows differ in where documents end
    documents.write_text(
        "".join(json.dumps({"text": (f"{n} " * n)[: 1 + n % 40]}) + "\n" for n in range(1, 200))
    )
    files = {"data=text": text, "data=jsonl": documents, "data=tsv": pairs}

    def start(name: str, kind: str, *more: str):
        words = KINDS[kind]
        path = [f"data.path={files[word]}" for word in words if word in files]
        small = [
            word
            for word in SMALL
            if kind != "token batches" or not word.startswith("data.batch_size")
        ]
        config = compose(["task_defaults=null", *small, *words, *path, *more])
        assert start_run(config, tmp_path / name) == 0
        return tmp_path / name

    return start


def weights(folder):
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_continues_and_ends_with_test_metrics(start, kind, monkeypatch):
    from tasks.callbacks.stopping import Deadline

    more = ["model.dropout=0.1", "data.num_workers=0"]
    whole = start("whole", kind, *more)
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["steps"] == 8
    assert summary["val/loss"] > 0
    assert summary["tokens_per_second"] > 0
    assert summary["flops_per_token"] > 0
    with monkeypatch.context() as patch:
        patch.setattr(Deadline, "_over", lambda self, trainer, task: task.step == 5)
        cut = start("cut", kind, *more, "trainer.max_time=00:00:10:00")
    monkeypatch.setattr(Deadline, "_over", lambda self, trainer, task: False)
    assert resume_run(cut) == 0
    pairs = zip(weights(cut).values(), weights(whole).values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_accumulation_is_one_batch_also_with_padding(start, kind):
    one, four = (
        weights(start(f"by {n}", kind, f"trainer.accumulate={n}", "optim.eps=1e-4")) for n in (1, 4)
    )
    for name, value in one.items():
        torch.testing.assert_close(
            value, four[name], rtol=1e-4, atol=2e-5, msg=lambda m, name=name: f"{name}: {m}"
        )


def test_answers_are_compared_with_targets(start):
    summary = json.loads((start("pairs", "translation") / "summary.json").read_text())
    assert 0 <= summary["val/exact_match"] <= 1


def test_accuracy_is_the_fraction_of_labelled_tokens_that_are_correct():
    from tasks.modules.language_modeling import count_correct
    from xformer_kit.tensors.tokens import Tokens

    class Parrot:  # says the token that it has just seen
        def hidden(self, tokens):
            return torch.nn.functional.one_hot(tokens.ids, 5).float(), {}

        def head(self, hidden):
            return hidden

    tokens = Tokens(ids=torch.tensor([[1, 1, 2, 2], [3, 3, 3, 4]]))
    labels = torch.tensor([[-1, 1, -1, 2], [-1, -1, 3, 4]])
    assert count_correct(Parrot(), {"tokens": tokens, "labels": labels}).tolist() == [3, 4, 1, 2]


def test_split_last_answer_has_the_expected_values():
    from tasks.modules.language_modeling import split_last_answer

    tokens = torch.tensor([5, 6, 7, 8, 9, 4])
    for asked, given, wanted in (
        ([0, 0, 0, 1, 1, 1], [5, 6, 7], [8, 9, 4]),
        (
            [0, 1, 0, 1, 1, 0],
            [5, 6, 7],
            [8, 9],
        ),  # the first is given, and so is nothing after the last
        ([0, 0, 0, 0, 0, 1], [5, 6, 7, 8, 9], [4]),
    ):
        found = split_last_answer(tokens, torch.tensor(asked).bool())
        assert [component.tolist() for component in found] == [given, wanted]


def test_the_sample_of_a_probe_is_the_models_answer(start, capsys):
    folder = start("probe", "a probe", "data.length=3", "data.shortest=1")
    given, written = json.loads((folder / "summary.json").read_text())["sample"].split("\n")
    *words, bar = given.split()
    assert bar == "|" and len(words) == len(written.split()) == 1  # the shortest of some examples
    said = capsys.readouterr().out
    assert f"Given     {given}\n" in said
    assert f"It wrote  {written}\n" in said
    assert f"--prompt {shlex.quote(given)}" in said
