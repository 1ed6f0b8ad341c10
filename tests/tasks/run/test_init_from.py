"""Runs that start from the weights of another run."""

import itertools
import json
import os
import random
import shlex

import pytest
import torch

from tasks.logging import summary
from tasks.process.exit_codes import Ended
from tasks.run.resume import resume_run
from tests.forked_train import train
from tests.messages import messages
from tests.tasks.run.test_saved_runs import contents
from tests.test_resume import same, state
from xformer_kit import ConfigError, compose, load
from xformer_kit.config import config_hash, preflight, read_config
from xformer_kit.config.saved.init_from_source import source_faults

SHORT = ["trainer.max_steps=2", "trainer.val_every=null", "trainer.checkpoint_every=null"]


@pytest.mark.extended
def test_a_run_starts_from_the_weights_of_another_and_records_it(begin, monkeypatch):
    vocabulary = "model.vocab_size=300"  # has tokens that the tokenizer has not
    _, run = begin("run", "ema.decay=0.9", vocabulary)
    taken = {}

    def keep(self, *_):
        taken.update({name: tensor.clone() for name, tensor in self.state_dict().items()})
        raise Ended("stopped")

    with monkeypatch.context() as context:
        context.setattr("tasks.modules.module.Task.on_fit_start", keep)
        code, stopped = begin("new", f"init_from={run}", vocabulary, *SHORT)
    assert code == 1
    assert same(taken, load(run).state_dict())  # the averaged weights, as every command loads them
    record = json.loads((stopped / "init_from.json").read_text())
    assert record["run"] == str(run) and record["step"] == 20 and not record["missing"]
    assert resume_run(stopped) == 0
    assert summary.read(stopped)["init_from"] == record
    best = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    best["average"]["embed.weight"] += 1
    torch.save(best, run / "checkpoints" / "best.ckpt")
    assert resume_run(stopped) == 0  # it has a checkpoint of its own


@pytest.mark.extended
def test_a_run_that_begins_again_from_other_weights_is_refused(begin, monkeypatch, capsys):
    _, run = begin("run")

    def stop(*_):
        raise Ended("stopped")

    with monkeypatch.context() as context:
        context.setattr("tasks.modules.module.Task.on_fit_start", stop)
        _, stopped = begin("new", f"init_from={run}", *SHORT)
    best = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    best["state_dict"]["embed.weight"] += 1
    torch.save(best, run / "checkpoints" / "best.ckpt")
    assert resume_run(stopped) == 2
    assert "must have the weights that this run began with" in capsys.readouterr().err


@pytest.mark.extended
def test_a_larger_model_is_new_where_it_is_larger_and_another_tokenizer_is_refused(
    begin, capsys, tmp_path
):
    words = ["tokenizer=bpe", "tokenizer.vocab_size=262"]
    _, run = begin("run", *words)
    before = contents(run)
    code, new = begin("larger", *words, f"init_from={run}", "model.layers=3", *SHORT)
    assert code == 0 and "new, with initial values: decoder.2.*" in capsys.readouterr().err
    missing = json.loads((new / "init_from.json").read_text())["missing"]
    assert missing == [name for name in load(new).state_dict() if name.startswith("decoder.2.")]
    none = "init_from.allow=[]"
    code, new = begin("new", *words, f"init_from={run}", "model.layers=3", none)
    assert code == 2 and not new.exists()
    assert "init_from.run: has not the tensors of this model; missing there: decoder.2.*" in (
        capsys.readouterr().err
    )
    other = tmp_path / "other.txt"
    other.write_text("zebra zoo zinc " * 200)
    code, new = begin("new", *words, f"init_from={run}", f"data.path={other}")
    assert code == 2 and not new.exists()
    answer = capsys.readouterr().err
    assert "tokenizer: must begin with the tokens of init_from.run. Try tokenizer=" in answer
    tokenizer = shlex.split(answer.partition(" Try ")[2].partition(". With ")[0])
    code, new = begin("new", *tokenizer, f"init_from={run}", f"data.path={other}", *SHORT)
    assert code == 0
    allowed = [*words, "init_from.allow=[embed.weight]"]
    code, new = begin("allowed", *allowed, f"init_from={run}", f"data.path={other}", *SHORT)
    assert code == 0
    assert json.loads((new / "init_from.json").read_text())["rows"]["embed.weight"] >= 256
    assert contents(run) == before
    assert state(new)["global_step"] == 2


def test_a_run_of_another_architecture_is_answered_with_its_options(begin, capsys):
    _, run = begin("run", "model.dim=24", "attn.heads=3", "trainer.max_steps=1")
    words = ["model.dim=36", "attn.head_dim=10", "model.freeze=[embed]", "model.dropout=0.3"]
    code, new = begin("new", *words, f"init_from={run}", *SHORT)
    assert code == 2 and not new.exists()
    answer = capsys.readouterr().err
    assert "init_from.run: has no tensor that fits this model, such as embed.weight: " in answer
    hint = answer.partition("For the architecture of the run set ")[2].partition(" and leave out ")
    assert hint[0].split()[:2] == ["model.dim=24", "attn.heads=3"]
    assert hint[2].strip() == "attn.head_dim=10."
    assert begin("same", *hint[0].split(), f"init_from={run}", *SHORT)[0] == 0


@pytest.mark.extended
def test_each_of_two_vocabularies_has_the_rows_of_its_own_tokens(begin, tmp_path):
    words = ["model=encoder_decoder", "task=seq2seq", "model.share_embeddings=false"]
    words += ["data=tsv", "tokenizer=word", "tokenizer.shared=false", "data.batch_tokens=null"]
    draw = random.Random(0)
    texts = {"a": ("red old big new", "un deux trois"), "b": ("old red", "trois un")}
    for name, (source, target) in texts.items():
        rows = (
            [" ".join(draw.choices(side.split(), k=5)) for side in (source, target)]
            for _ in range(200)
        )
        (tmp_path / name).write_text("".join("\t".join(row) + "\n" for row in rows))
    _, run = begin("run", *words, f"data.path={tmp_path / 'a'}", *SHORT)
    allow = "init_from.allow=[embed.weight,source_embed.weight]"
    still = ["optim.lr=1e-30", "optim.weight_decay=0"]
    code, new = begin(
        "new", *words, f"data.path={tmp_path / 'b'}", f"init_from={run}", allow, *SHORT, *still
    )
    assert code == 0
    ours, theirs = load(new), load(run)
    for side, table in (("tokenizer", "embed"), ("source_tokenizer", "source_embed")):
        own, others = getattr(ours, side).pieces(), getattr(theirs, side).pieces()
        common = set(own) & set(others)
        assert own != others and len(common) > 2
        for token in common:
            a, b = (
                getattr(model, table).weight[pieces.index(token)]
                for model, pieces in ((ours, own), (theirs, others))
            )
            assert torch.equal(a, b), (side, token)


def test_a_directory_without_one_of_the_files_is_no_run(tmp_path):
    files = ("config.yaml", "checkpoints/last.ckpt")
    for count, found in enumerate(itertools.product([False, True], repeat=2)):
        run = tmp_path / str(count)
        (run / "checkpoints").mkdir(parents=True)
        for name in itertools.compress(files, found):
            (run / name).touch()
        faults = messages(source_faults({"init_from": {"run": str(run)}}))
        rule = "has no checkpoint" if found[0] else "must be a run's directory"
        assert [rule in each for each in faults] == [True] * (not all(found))


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("init_from=/nowhere", "init_from.run: must be a run's directory, a file in its"),
        ("init_from=''", "init_from.run: must not be empty; got ''."),
        ("init_from.allow=[a]", "init_from.allow: is about the weights of init_from.run, which is"),
    ],
)
def test_a_wrong_value_is_refused(word, answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        preflight([word])
    assert str(error.value).startswith(answer)


def test_a_config_without_it_has_the_hash_of_one_from_before_the_setting():
    config = compose()
    without = {key: value for key, value in config.items() if key != "init_from"}
    assert config_hash(config) == config_hash(without)
    other = compose(["init_from=/nowhere"])
    assert config_hash(other) != config_hash(config)


def test_a_preset_beside_a_run_is_refused(begin):
    _, run = begin("run", "trainer.max_steps=1")
    with pytest.raises(ConfigError, match="preset: has no effect"):
        compose([f"init_from={run}", "preset=llama"])


@pytest.mark.extended
@pytest.mark.parametrize("sweep", [False, True], ids=["a run", "a sweep"])
def test_a_line_of_its_own_process_starts_from_a_run(begin, tmp_path, sweep):
    """The architecture that a source adds is no word of the line by which a job is found."""
    _, run = begin("run", "model.dim=24", "attn.heads=3", "norm=layer", *SHORT)
    words = [f"init_from={run}", "data=pydoc", "data.seq_len=16", "logger=none", *SHORT]
    place = "sweep" if sweep else "run"
    words += ["-m", "seed=1,2"] * sweep + [f"hydra.{place}.dir={tmp_path}/new"]
    done = train([*words, "trainer.sample=false"], tmp_path, dict(os.environ))
    assert done.returncode == 0, done.stderr
    for folder in ("new/0", "new/1") if sweep else ("new",):
        config = read_config(tmp_path / folder)
        assert (config["model"]["dim"], config["norm"]["name"]) == (24, "layer")
        assert (tmp_path / folder / "init_from.json").is_file()
