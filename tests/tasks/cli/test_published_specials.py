"""Special tokens of published models: the commands use those of the model's own files."""

import json
from argparse import Namespace
from itertools import takewhile

import numpy as np
import pytest
import torch

from tasks.cli import main
from tasks.cli.command import load_run
from tasks.generation.attention_picture import attention_weights
from tasks.generation.decoding import generate_answers
from tasks.generation.infilling import fill_masks, restore_spans, split_at_holes
from tasks.run.init_from import vocabulary_tensors
from xformer_kit import build, compose
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.data.tokenizer.exported import write_tokenizer
from xformer_kit.export import save_published
from xformer_kit.objective.denoising import MASK

transformers = pytest.importorskip("transformers")
TEXT = ["the quick brown fox jumps over the lazy dog " * 9]
SMALL = ["model.dim=16", "model.layers=1", "attn.heads=2", "ffn.width=24", "data.seq_len=32"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def of_words(specials):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    library = Tokenizer(models.WordLevel(unk_token=specials[1]))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.train_from_iterator(TEXT, trainers.WordLevelTrainer(special_tokens=specials))
    return library


def of_bytes(specials):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"special_tokens": specials, "initial_alphabet": alphabet, "vocab_size": 300}
    library.train_from_iterator(TEXT, trainers.BpeTrainer(**options))
    return library


def published(folder, preset, specials, template, settings, ids, *words, make=of_words):
    """Writes a model with a tokenizer of transformers, and returns the tokenizer."""
    from tokenizers import processors

    library, specials = make(specials), [str(getattr(s, "content", s)) for s in specials]
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


def test_the_tokens_around_a_text_are_never_masked(tmp_path):
    """Also in a window that holds no other token, as the last one of a text may."""
    template = "[CLS] $A [SEP]"
    tokenizer = published(tmp_path / "m", "bert", [*BERT, "[MASK]"], template, {}, {})
    objective = opened(tmp_path / "m").objective
    objective.rate = 1.0
    ids = np.array([*tokenizer("the fox")["input_ids"], 0])  # the last of a window is dropped
    labels = objective.example({"tokens": ids}, torch.Generator())["labels"]
    assert labels.tolist() == [-1, *ids[1:3], -1]
    labels = objective.example({"tokens": ids[[0, 3, 4]]}, torch.Generator())["labels"]
    assert labels.tolist() == [-1, -1]


@pytest.mark.parametrize("text", ["the quick fox", "the <mask> fox"])
def test_the_attention_to_a_text_is_that_within_the_tokens_around_it(text, tmp_path):
    template = "[CLS] $A [SEP]"
    tokenizer = published(tmp_path / "m", "bert", [*BERT, "[MASK]"], template, {}, {})
    weights = attention_weights(opened(tmp_path / "m"), text, None, None, None)
    expected = tokenizer(text.replace("<mask>", "[MASK]"))["input_ids"]
    assert [record.query.ids[0].tolist() for record in weights.values()] == [expected]


@pytest.mark.parametrize("lstrip", [True, False])
def test_the_space_before_a_hole_is_the_masks_if_its_file_says_so(lstrip, tmp_path):
    from tokenizers import AddedToken

    specials = [*BERT, AddedToken("[MASK]", lstrip=lstrip, special=True)]
    tokenizer = published(tmp_path / "m", "bert", specials, "[CLS] $A [SEP]", {}, {}, make=of_bytes)
    run = opened(tmp_path / "m")
    pieces = split_at_holes(run.objective, "the <mask> fox", "--prompt")[1]
    ids = run.objective.join_with_blanks(pieces).tolist()
    assert ids == tokenizer("the [MASK] fox")["input_ids"]


def test_the_mask_that_a_task_adds_has_its_name_in_an_exported_tokenizer(tmp_path):
    tokenizer = TOKENIZERS.create({"name": "bpe", "vocab_size": 300})
    tokenizer.fit(TEXT)
    tokenizer.specials = (MASK,)
    write_tokenizer(tmp_path, tokenizer, {}, False)
    read = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert read.mask_token_id == tokenizer.special(MASK) == read(MASK)["input_ids"][0]


def test_the_fixed_bias_of_logits_keeps_its_rows_if_the_vocabulary_grows():
    model = build(compose(["preset=bart", *SMALL, "model.vocab_size=20"], data=False))
    assert vocabulary_tensors(model)["head.bias"] == (len(model.head.bias), "tokenizer")


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


@pytest.mark.parametrize("template", ["<s> $A", "<s> $A </s>"])
def test_a_decoder_reads_the_tokens_of_its_template_around_a_text(template, tmp_path, capsys):
    """Texts have the log-likelihood and, without an end, the continuation that transformers
    computes.
    """
    settings = {"bos_token": "<s>", "unk_token": "<unk>"}
    specials = ["<s>", "<unk>", "</s>"]
    tokenizer = published(tmp_path / "m", "llama3", specials, template, settings, {})
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
    text = "the quick brown fox"
    ids = torch.tensor(tokenizer([text])["input_ids"])
    assert ids[0, 0] == tokenizer.bos_token_id
    with torch.no_grad():
        nats = theirs(ids, labels=ids).loss.item() * (ids.shape[1] - 1)
    (tmp_path / "text").write_text(text)
    assert main(["score", str(tmp_path / "m"), "--input", str(tmp_path / "text"), "--json"]) == 0
    (score,) = json.loads(capsys.readouterr().out)
    count = ids.shape[1] - 1
    assert (score["tokens"], score["nats"]) == (count, pytest.approx(nats, abs=1e-4))
    assert main(["evaluate", str(tmp_path / "m"), "--input", str(tmp_path / "text"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tokens"], found["bytes"]) == (count, len(text))
    assert found["loss"] == pytest.approx(nats / count, abs=1e-5)
    ids = ids[:, :5]  # without an end
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
