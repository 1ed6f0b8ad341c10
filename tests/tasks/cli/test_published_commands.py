"""Published models on the command line: identify, import, generate, export, and what is refused."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from tasks.cli import main
from tasks.run.resume import resume_run
from xformer_kit import ConfigError, build, compose, load
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.export import save_published, save_with_code
from xformer_kit.objective.seq2seq import END, START

WORDS = ["preset=llama3", "model.dim=24", "model.layers=2", "attn.heads=4", "model.max_len=64"]
WORDS += ["data.seq_len=64", "ffn.width=40", "model.vocab_size=300"]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The directory of a small Llama with a tokenizer."""
    folder = tmp_path_factory.mktemp("published") / "llama"
    config = compose(WORDS, data=False)
    model = build(config)
    tokenizer = TOKENIZERS.create({"name": "bpe", "vocab_size": 300})
    tokenizer.fit(["the quick brown fox jumps over the lazy dog " * 9])
    model.tokenizer = tokenizer
    save_published(folder, model, config)
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(published, tmp_path):
    """A copy of it."""
    return shutil.copytree(published, tmp_path / "llama")


def test_identify_prints_the_overrides_that_compose_it(published, capsys):
    for path in (published, published / "config.json"):
        assert main(["identify", str(path)]) == 0
        words = capsys.readouterr().out.split()
        assert words[0] == "preset=llama" and "attn.kv_heads=2" in words
        config = compose([*words, "data.seq_len=64"], data=False)
        assert (config["model"]["dim"], config["ffn"]["width"]) == (24, 40)
        assert config["position"]["theta"] == 5e5


def test_an_imported_model_generates_and_is_exported_as_it_was(published, tmp_path, capsys):
    run, again = tmp_path / "run", tmp_path / "again"
    assert main(["import", str(published), "--output", str(run)]) == 0
    assert capsys.readouterr().out.startswith("preset=llama model.dim=24 ")
    texts = []
    for path in (published, run):
        options = ["--prompt", "the quick", "--temperature", "0", "--max-new-tokens", "5"]
        assert main(["generate", str(path), *options]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and texts[0].startswith("the quick")
    assert main(["export", str(run), "--to", str(again)]) == 0
    one, two = (load_file(path / "model.safetensors") for path in (published, again))
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    assert (again / "tokenizer.json").read_text() == (published / "tokenizer.json").read_text()
    assert resume_run(run) == 2
    answer = capsys.readouterr().err
    assert "no step of a training to resume. Start a new run from it: " in answer


@pytest.mark.extended
def test_what_a_model_says_of_its_generation_is_exported_again(folder, tmp_path):
    """Also from a run that continues it."""
    kept = {"generation_config.json": '{"eos_token_id": 7}', "chat_template.jinja": "{{ x }}"}
    for name, text in kept.items():
        (folder / name).write_text(text)
    change(folder, eos_token_id=6)
    assert main(["import", str(folder), "--output", str(tmp_path / "run")]) == 0
    line = [f"init_from={folder}", "data=text", f"data.path={__file__}", "trainer.max_steps=1"]
    more = tmp_path / "more"
    line += ["data.batch_size=2", "trainer.accelerator=cpu", f"hydra.run.dir={more}"]
    assert main(["train", *line]) == 0
    for run, to in ((tmp_path / "run", "a"), (more, "b")):
        assert main(["export", str(run), "--to", str(tmp_path / to)]) == 0
        assert {name: (tmp_path / to / name).read_text() for name in kept} == kept
        assert json.loads((tmp_path / to / "config.json").read_text())["eos_token_id"] == 6


@pytest.mark.extended
def test_an_exported_answer_begins_and_ends_as_here(tmp_path):
    """With T5, whose sources end with a special token of the task."""
    transformers = pytest.importorskip("transformers")
    words = ["preset=t5", "task=seq2seq", "model.dim=16", "model.layers=1", "attn.heads=2"]
    config = compose([*words, "attn.head_dim=8", "ffn.width=24"], data=False)
    tokenizer = TOKENIZERS.create({"name": "bpe", "vocab_size": 300})
    tokenizer.fit(["the quick brown fox jumps over the lazy dog " * 9])
    tokenizer.specials = START, END
    model = build(config, vocab_size=tokenizer.size, source_vocab_size=tokenizer.size).eval()
    model.tokenizer = tokenizer
    save_published(tmp_path / "t5", model, config)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "t5")
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "t5")
    start, end = map(tokenizer.special, (START, END))
    source = [*tokenizer.encode("the lazy").tolist(), end]
    assert read("the lazy")["input_ids"] == source
    out = theirs.generate(torch.tensor([source]), max_new_tokens=20)[0].tolist()
    assert out[0] == start and theirs.generation_config.eos_token_id == end
    ours = [start]
    while len(ours) < 21 and ours[-1] != end:
        logits = model(torch.tensor([ours]), source=torch.tensor([source]))
        ours.append(int(logits[0, -1].argmax()))
    assert out == ours


IDS = {"bos_token_id": 5, "eos_token_id": [7, 8], "pad_token_id": 9}


def test_the_ids_of_special_tokens_are_those_of_the_source(folder, tmp_path):
    """A key that its config.json lacks stays out: the default of the class applies to both."""
    change(folder, **IDS)
    path = folder / "config.json"
    lacks = json.loads(path.read_text())
    lacks.pop("bos_token_id")
    path.write_text(json.dumps(lacks))
    (folder / "generation_config.json").unlink()
    run, to = tmp_path / "run", tmp_path / "to"
    assert main(["import", str(folder), "--output", str(run)]) == 0
    assert main(["export", str(run), "--to", str(to)]) == 0
    files = ("config.json", "generation_config.json")
    keys, generation = (json.loads((to / file).read_text()) for file in files)
    assert {name: keys[name] for name in IDS if name in keys} == dict([*IDS.items()][1:])
    assert generation["eos_token_id"] == [7, 8] and generation["pad_token_id"] == 9


def test_a_model_that_no_source_has_names_no_special_token(published):
    """Not those of the class in transformers: Llama's are 1 and 2."""
    keys = json.loads((published / "config.json").read_text())
    assert [keys[name] for name in IDS] == [None] * 3


def test_exported_code_keeps_no_cache_also_with_the_generation_config_of_a_source(
    published, tmp_path
):
    config = compose([*WORDS, "position=alibi"], data=False)
    (tmp_path / "generation_config.json").write_text('{"use_cache": true, "eos_token_id": 7}')
    out = tmp_path / "out"
    save_with_code(out, build(config), config, "A model", "a command", tmp_path)
    written = json.loads((out / "generation_config.json").read_text())
    assert written == {"use_cache": False, "eos_token_id": 7}


def test_weights_keep_their_precision(folder):
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {name: tensor.bfloat16() for name, tensor in tensors.items()}, folder / "model.safetensors"
    )
    model = load(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert torch.equal(
        model.decoder[1].ffn.up.weight, tensors["model.layers.1.mlp.up_proj.weight"].bfloat16()
    )


def test_a_run_adopts_the_architecture_under_an_experiment_and_the_line(published, tmp_path):
    experiment = tmp_path / "own.yaml"
    experiment.write_text("attn: {kv_heads: 4}\nmodel: {layers: 3}\n")
    words = [f"init_from={published}", f"experiment={experiment}", "model.layers=5", "position=t5"]
    words.append("data.seq_len=64")
    config = compose(words, data=False)
    assert (config["model"]["dim"], config["ffn"]["width"]) == (24, 40)  # of the model
    assert config["attn"]["kv_heads"] == 4  # of the experiment
    assert (config["model"]["layers"], config["position"]["name"]) == (5, "t5")  # of the line
    assert config["tokenizer"]["path"] == str(published / "tokenizer.json")
    assert config["model"]["vocab_size"] is None


def change(folder, **keys):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | keys
    path.write_text(json.dumps(config))


def lose(folder, name, more=None):
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(name)
    save_file(tensors | (more or {}), folder / "model.safetensors")


def cut(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def only(folder, name, text):
    (folder / "model.safetensors").unlink()
    (folder / name).write_text(text)


INDEX = json.dumps({"weight_map": {"lm_head.weight": "model-00001-of-00002.safetensors"}})
OUTSIDE = json.dumps({"weight_map": {"lm_head.weight": "../model.safetensors"}})
UP, NORM = "model.layers.1.mlp.up_proj.weight", "model.norm.weight"
FAULTS = {
    "value": (
        lambda f: change(f, hidden_act="gelu_pytorch_tan"),
        "config.json: hidden_act: must be one of 'gelu', ",
        "got gelu_pytorch_tan. The nearest that is: gelu_pytorch_tanh.",
    ),
    "key": (
        lambda f: change(f, secret=3),
        "config.json: secret: is a key whose meaning is not known here; got 3.",
    ),
    "family": (
        lambda f: change(f, model_type="lama"),
        "model_type: is of no family that is known here; got lama. Similar: llama.",
    ),
    "no key": (
        lambda f: change(f, hidden_size=None),
        "config.json: hidden_size (model.dim): must be ",
    ),
    "range": (
        lambda f: change(f, rms_norm_eps=-1),
        "config.json: rms_norm_eps (norm.eps): must be at least 0; got -1.",
    ),
    "missing": (
        lambda f: lose(f, UP, {"extra": torch.ones(1)}),
        f"lacks {UP}; has extra, which the composition does not have.",
    ),
    "shape": (
        lambda f: lose(f, NORM, {NORM: torch.ones(7)}),
        f"has {NORM} of the shape (7,), where config.json implies (24,).",
    ),
    "cut": (cut, "model.safetensors: is no complete file of safetensors ("),
    "pickle": (
        lambda f: only(f, "pytorch_model.bin", ""),
        "has its weights in pytorch_model.bin, a pickle, which can run code when it is read.",
    ),
    "nothing": (lambda f: only(f, "other", ""), "has no model.safetensors and no model.safet"),
    "shard": (
        lambda f: only(f, "model.safetensors.index.json", INDEX),
        "names model-00001-of-00002.safetensors, which is not there.",
    ),
    "outside": (
        lambda f: only(f, "model.safetensors.index.json", OUTSIDE),
        "must map the names of tensors to files next to it, under weight_map.",
    ),
    "sentencepiece": (
        lambda f: (f / "tokenizer.json").rename(f / "tokenizer.model"),
        "has its tokenizer in tokenizer.model, of SentencePiece, and no tokenizer.json.",
    ),
    "generation": (
        lambda f: (f / "generation_config.json").write_text("{"),
        "generation_config.json: cannot be read as JSON: ",
    ),
    "json": (
        lambda f: (f / "config.json").write_text("{"),
        "config.json: cannot be read as JSON: ",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_directory_is_answered_in_a_sentence_and_nothing_is_written(
    name, folder, tmp_path, capsys
):
    spoil, *parts = FAULTS[name]
    spoil(folder)
    output = tmp_path / "run"
    assert main(["import", str(folder), "--output", str(output)]) == 2
    answer = capsys.readouterr().err
    assert all(part in answer for part in parts), answer
    assert len(answer.splitlines()) == 1 and not output.exists()


def test_a_file_that_is_no_config_json_is_refused(published, tmp_path, capsys):
    for command in (["identify"], ["import", "--output", str(tmp_path / "run")]):
        assert main([command[0], str(published / "tokenizer.json"), *command[1:]]) == 2
        rule = "tokenizer.json: must be a config.json, or a directory with one."
        assert rule in capsys.readouterr().err


def test_a_picture_of_a_published_model_is_saved_here(published, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in (["attention", str(published), "--text", "the fox"], ["mask", str(published)]):
        assert main(["plot", *words]) == 0
        assert capsys.readouterr().out == f"{words[0]}.png\n"
        assert (tmp_path / f"{words[0]}.png").is_file()


def test_a_tokenizer_of_another_size_is_refused(folder, tmp_path, capsys):
    tensors = load_file(folder / "model.safetensors")
    for name in ("lm_head.weight", "model.embed_tokens.weight"):
        tensors[name] = tensors[name][:100].clone()
    save_file(tensors, folder / "model.safetensors")
    change(folder, vocab_size=100)
    output = tmp_path / "run"
    assert main(["import", str(folder), "--output", str(output)]) == 2
    assert "tokenizer.json: has more tokens than the model; got " in capsys.readouterr().err
    assert not output.exists()


def test_a_composition_of_no_family_is_refused_with_the_nearest(tmp_path):
    config = compose([*WORDS, "position=alibi"], data=False)
    with pytest.raises(ConfigError) as error:
        save_published(tmp_path / "out", build(config), config, ["llama", "gpt2"])
    assert str(error.value).startswith(
        "config: is the composition of no published family that is known here. The nearest is"
        " llama: decoder.0.attn.position.name is 'alibi' here and 'rotary' there"
    )
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_tokenizer_is_loaded_ejected_and_exported(tmp_path, capsys):
    folder, config = tmp_path / "model", compose([*WORDS[:-1], "model.vocab_size=90"], data=False)
    save_published(folder, build(config), config)
    model = load(folder)
    assert (model.vocab_size, model.tokenizer) == (90, None)
    assert main(["eject", str(folder), "--to", str(tmp_path / "model.py")]) == 0
    assert main(["export", str(folder), "--to", str(tmp_path / "again")]) == 0
    output = str(tmp_path / "run")
    assert main(["import", str(folder / "config.json"), "--output", output]) == 0
    assert main(["generate", str(folder), "--prompt", "a"]) == 2
    assert "has no tokenizer.json. Save the model's tokenizer there." in capsys.readouterr().err


def test_a_preset_of_another_family_than_the_source_is_refused(published):
    words = [f"init_from={published}", "data=pydoc"]
    config = compose(["preset=llama", *words], data=False)
    assert (config["model"]["max_len"], config["data"]["seq_len"]) == (64, 64)
    with pytest.raises(ConfigError, match="preset: has no effect"):
        compose(["preset=gpt2", *words], data=False)


def test_directories_that_are_not_empty_are_refused(published, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for words in (["import", str(published), "--output"], ["export", str(published), "--to"]):
        assert main([*words, str(tmp_path / "full")]) == 2
        assert "must be empty or not exist" in capsys.readouterr().err


def test_the_page_of_a_model_names_its_directory_and_evaluation_needs_a_text(published, capsys):
    assert main(["describe", str(published)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == str(published)
    assert main(["evaluate", str(published)]) == 2
    answer = "--input: is needed for an imported model, which has no text of its own."
    assert answer in capsys.readouterr().err
