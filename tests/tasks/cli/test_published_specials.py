"""Special tokens of published models: the commands use those of the model's own files."""

import json
from argparse import Namespace
from itertools import takewhile

import numpy as np
import pytest
import torch

from tasks.cli import main
from tasks.cli.command import load_run
from tasks.generation.decoding import generate_answers
from tasks.generation.infilling import fill_masks, restore_spans, split_at_holes
from xformer_kit import build, compose
from xformer_kit.export import save_published

transformers = pytest.importorskip("transformers")
TEXT = ["the quick brown fox jumps over the lazy dog " * 9]
SMALL = ["model.dim=16", "model.layers=1", "attn.heads=2", "ffn.width=24", "data.seq_len=32"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def published(folder, preset, specials, template, settings, ids, *words):
    """Writes a model with a tokenizer of transformers, and returns the tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    library = Tokenizer(models.WordLevel(unk_token=specials[1]))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.train_from_iterator(TEXT, trainers.WordLevelTrainer(special_tokens=specials))
    named = [(name, library.token_to_id(name)) for name in specials]
    library.post_processor = processors.TemplateProcessing(template, None, named)
    size = f"model.vocab_size={library.get_vocab_size() + 3}"
    config = compose([f"preset={preset}", *SMALL, size, *words], data=False)
    save_published(folder, build(config), config)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=library, **settings)
    tokenizer.save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | ids))
    (folder / "generation_config.json").unlink()
    return tokenizer


def opened(folder):
    return load_run(Namespace(run=str(folder), components=[], checkpoint=None))


BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


@pytest.mark.parametrize("mask", ["[MASK]", "<hidden>"])
def test_a_hole_is_the_mask_of_the_model_within_its_own_first_and_last_token(mask, tmp_path):
    settings = {"unk_token": "[UNK]"}
    settings |= {} if mask == "[MASK]" else {"mask_token": mask}  # of the class, in old files
    template = "[CLS] $A [SEP]"
    tokenizer = published(tmp_path / "m", "bert", [*BERT, mask], template, settings, {})
    run = opened(tmp_path / "m")
    pieces = split_at_holes(run.objective, "the <mask> fox", "--prompt")[1]
    ids = run.objective.join_with_blanks(pieces)
    assert ids.tolist() == tokenizer(f"the {mask} fox")["input_ids"]
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "m").eval()
    with torch.no_grad():
        logits = theirs(torch.from_numpy(ids)[None]).logits[0, 2]
    likely = fill_masks(run, ["the <mask> fox"], 3, "--prompt")[0].likely[0]
    top = torch.softmax(logits, -1)[: len(tokenizer)].topk(3).values
    torch.testing.assert_close(torch.tensor([p for _, p in likely]), top, atol=1e-5, rtol=0)


def test_a_model_without_a_mask_is_refused(tmp_path, capsys):
    published(tmp_path / "m", "bert", BERT, "[CLS] $A [SEP]", {"unk_token": "[UNK]"}, {})
    assert main(["generate", str(tmp_path / "m"), "--prompt", "the <mask> fox"]) == 2
    answer = capsys.readouterr().err
    assert answer.startswith("tokenizer: must have a token in place of <mask> of the task")
    assert len(answer.splitlines()) == 1


T5 = ["<pad>", "<unk>", "</s>", *(f"<extra_id_{i}>" for i in range(100))]
BART = ["<s>", "<unk>", "</s>", "<mask>"]
BART_IDS = {"decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": None}
IDS = {"decoder_start_token_id": 0, "eos_token_id": 2, "pad_token_id": 0}


def test_an_answer_starts_and_ends_as_in_transformers(tmp_path):
    settings = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    words = ["attn.head_dim=8", "model.tie_embeddings=false"]
    tokenizer = published(tmp_path / "m", "t5", T5, "$A </s>", settings, IDS, *words)
    run = opened(tmp_path / "m")
    source = tokenizer("the <extra_id_0> fox <extra_id_1>", return_tensors="pt")["input_ids"]
    pieces = split_at_holes(run.objective, "the <mask> fox <mask>", "--prompt")[1]
    pair = run.objective.pair(run.objective.join_with_blanks(pieces), [])
    assert pair["source"].tolist() == source[0].tolist()
    assert pair["target"].tolist() == [0, 2]
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "m").eval()
    answer = theirs.generate(source, max_new_tokens=6)[0, 1:].tolist()
    example = {"source": run.objective.join_with_blanks(pieces), "target": np.array([])}
    ours = generate_answers(run, [example], max_new_tokens=6, temperature=0.0)[0][0].ids.tolist()
    assert ours == [*takewhile(lambda i: i != 2, answer)]
    assert restore_spans(run, ["the <mask> fox"], "--prompt", max_new_tokens=6)[0][0][0]


def test_a_fixed_second_token_of_an_answer_is_refused(tmp_path, capsys):
    ids = {**IDS, "forced_bos_token_id": 5}
    settings = {"eos_token": "</s>", "unk_token": "<unk>"}
    published(tmp_path / "m", "t5", T5, "$A </s>", settings, ids, "attn.head_dim=8")
    assert main(["generate", str(tmp_path / "m"), "--prompt", "the <mask> fox"]) == 2
    assert "must have a token in place of <s> of the task" in capsys.readouterr().err


def test_a_decoder_reads_the_first_token_of_its_template_before_a_text(tmp_path, capsys):
    """Texts have the log-likelihood and the continuation that transformers computes."""
    settings = {"bos_token": "<s>", "unk_token": "<unk>"}
    template = "<s> $A"
    tokenizer = published(tmp_path / "m", "llama3", ["<s>", "<unk>"], template, settings, {})
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
    text = "the quick brown fox"
    ids = torch.tensor(tokenizer([text])["input_ids"])
    assert ids[0, 0] == tokenizer.bos_token_id
    with torch.no_grad():
        nats = theirs(ids, labels=ids).loss.item() * (ids.shape[1] - 1)
    (tmp_path / "text").write_text(text)
    assert main(["score", str(tmp_path / "m"), "--input", str(tmp_path / "text"), "--json"]) == 0
    (score,) = json.loads(capsys.readouterr().out)
    assert (score["tokens"], score["nats"]) == (4, pytest.approx(nats, abs=1e-4))
    assert main(["evaluate", str(tmp_path / "m"), "--input", str(tmp_path / "text"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tokens"], found["bytes"]) == (4, len(text))
    assert found["loss"] == pytest.approx(nats / 4, abs=1e-5)
    options = ["--prompt", text, "--temperature", "0", "--max-new-tokens", "5"]
    assert main(["generate", str(tmp_path / "m"), *options]) == 0
    answer = theirs.generate(ids, max_new_tokens=5, do_sample=False, eos_token_id=None)
    expected = tokenizer.decode(answer[0, ids.shape[1] :], skip_special_tokens=True)
    assert capsys.readouterr().out.removeprefix(text).split() == expected.split()


@pytest.mark.extended
@pytest.mark.parametrize(
    ("preset", "specials", "template", "ids", "task", "names"),
    [
        # the preset of BART chooses its task
        ("bert", [*BERT, "[MASK]"], "[CLS] $A [SEP]", {}, "masked_language_modeling", ["[MASK]"]),
        ("t5", T5, "$A </s>", IDS, "denoising", ["<pad>", "</s>", *T5[3:]]),
        ("bart", BART, "<s> $A </s>", BART_IDS, "text_infilling", ["</s>", "</s>", "<mask>"]),
    ],
)
def test_a_run_that_starts_from_a_model_trains_with_its_special_tokens(
    preset, specials, template, ids, task, names, tmp_path, capsys
):
    """No rows are added. Also when it is loaded, goes on, is a source itself, and is exported."""
    settings = {"unk_token": specials[1]}
    words = ["attn.head_dim=8"] if preset == "t5" else []
    words += ["model.max_len=64"] if preset == "bart" else []
    tokenizer = published(tmp_path / "m", preset, specials, template, settings, ids, *words)
    (tmp_path / "text").write_text(TEXT[0] * 9)
    line = [f"data.path={tmp_path / 'text'}", "data=text", "logger=none"]
    line += ["data.batch_size=2", "data.seq_len=16", "trainer.accelerator=cpu"]
    expected = [tokenizer.convert_tokens_to_ids(name) for name in names]
    source, with_task = tmp_path / "m", [*line, f"task={task}"]
    line = line if preset == "bart" else with_task
    for run in (tmp_path / "one", tmp_path / "two"):
        first = [*line, "trainer.max_steps=2", f"hydra.run.dir={run}"]
        assert main(["train", f"init_from={source}", *first]) == 0
        opened_run = opened(run)
        objective = opened_run.objective
        assert opened_run.config["task"]["name"] == task
        assert [objective.tokenizer.special(name) for name in objective.specials] == expected
        assert objective.tokenizer.size == len(tokenizer)
        source, line = run, with_task
    assert main(["train", f"resume={run}", "trainer.max_steps=3"]) == 0
    assert main(["evaluate", str(run)]) == 0
    assert main(["export", str(run), "--to", str(tmp_path / "again")]) == 0
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again("the fox")["input_ids"] == tokenizer("the fox")["input_ids"]
    capsys.readouterr()
