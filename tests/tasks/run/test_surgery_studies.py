"""Studies and experiments that start from a trained model."""

import json

import pytest
import torch

from tasks.run.early_checks import with_sources
from tasks.run.prolonged import is_of_study
from tasks.study.resolve import resolve
from tests.forked_train import train
from tests.source_runs import write_source
from tests.train_processes import environment
from xformer_kit import ConfigError, build, compose
from xformer_kit.config import preflight, read_config
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.export import save_published
from xformer_kit.study import study_node

SMALL = ["model.dim=16", "model.layers=2", "attn.heads=4", "norm=layer", "tokenizer=byte"]
DATA = ["data=copy", "data.batch_size=4", "logger=none", "study.seeds=2"]
VARIANTS = ("baseline", "window_32", "kv_heads_2", "kv_heads_1", "no_position", "qk_norm")


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_source(tmp_path / "base", SMALL)


def plan(*words):
    line = preflight(["study=surgery", *DATA, *words])
    node = study_node.complete(line.study, line.study["name"])
    return resolve(node, with_sources(line.compose), line.argv)


@pytest.mark.extended
def test_every_variant_has_the_composition_of_the_source_but_for_its_change(source):
    found = {
        one.name.removeprefix("surgery="): one.config for one in plan("init_from=base").variants
    }
    assert tuple(found) == VARIANTS
    base = found["baseline"]
    assert (base["model"]["dim"], base["norm"]["name"]) == (16, "layer")
    assert base["tokenizer"]["name"] == "pretrained"
    changed = {
        name: {key for key in base if config[key] != base[key]} for name, config in found.items()
    }
    assert changed == {
        "baseline": set(),
        "window_32": {"mask"},
        "kv_heads_2": {"attn"},
        "kv_heads_1": {"attn"},
        "no_position": {"position"},
        "qk_norm": {"attn"},
    }


@pytest.mark.extended
def test_a_published_model_is_a_source_too(source, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    words = ["preset=llama3", "model.dim=24", "model.layers=1", "attn.heads=4", "attn.kv_heads=2"]
    config = compose([*words, "model.vocab_size=300", "ffn.width=40"], data=False)
    model = build(config)
    model.tokenizer = TOKENIZERS.create({"name": "bpe", "vocab_size": 300})
    model.tokenizer.fit(["the quick brown fox jumps over the lazy dog " * 9])
    save_published(tmp_path / "llama", model, config)
    with pytest.raises(ConfigError, match=r"^study\.factors: surgery=kv_heads_2 and baseline are"):
        plan("init_from=llama")
    found = plan("init_from=llama", "study.exclude=[{surgery: kv_heads_2}]").variants
    assert len(found) == 5 and {one.config["ffn"]["width"] for one in found} == {40}
    assert {one.config["position"].get("theta") for one in found} == {5e5, None}


@pytest.mark.extended
def test_other_weights_of_the_source_are_other_runs(source):
    keys = [run.key for run in plan("init_from=base").runs]
    assert [run.key for run in plan("init_from=base").runs] == keys
    file = source / "checkpoints/last.ckpt"
    state = torch.load(file, weights_only=True)
    state["state_dict"]["embed.weight"] += 1
    torch.save(state, file)
    assert {run.key for run in plan("init_from=base").runs}.isdisjoint(keys)


@pytest.mark.extended
def test_a_source_of_a_file_is_that_of_the_line(source, tmp_path):
    """As `init_from: RUN`, or with options; the line may name another, or none."""
    words = ["init_from=base", "placement=post", "data=copy"]
    on_line = compose(words, data=False)
    for text in ("init_from: base", "init_from: {run: base}"):
        (tmp_path / "mine.yaml").write_text(f"{text}\nplacement: {{name: post}}\n")
        of_file = ["experiment=mine.yaml", "data=copy"]
        assert compose(of_file, data=False) == on_line
        (config,) = preflight([*of_file, "logger=none"]).configs
        assert config["model"]["dim"] == 16
    other = write_source(tmp_path / "other", ["model.dim=32", *SMALL[1:]])
    named = compose(["experiment=mine.yaml", "data=copy", f"init_from={other}"], data=False)
    assert (named["model"]["dim"], named["placement"]["name"]) == (32, "post")
    without = compose(["experiment=mine.yaml", "data=copy", "init_from.run=null"], data=False)
    assert without["norm"]["name"] == "rms" and without["init_from"]["run"] is None


@pytest.mark.extended
def test_another_model_than_that_of_the_source_has_its_own_stacks_and_mask(source):
    words = ["init_from=base", "task=masked_language_modeling", "model=encoder"]
    config = compose(words, data=False)
    assert config["model"]["encoder"] == {} and "decoder" not in config["model"]
    assert (config["mask"]["name"], config["norm"]["name"]) == ("full", "layer")
    words = ["init_from=base", "model=encoder_decoder", "task=seq2seq", "data=dates"]
    model = compose(words, data=False)["model"]
    assert model["encoder"] == {"mask": "full"} and model["decoder"] == {}


@pytest.mark.extended
@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ([], "init_from.run: must not be empty; got ''. Add init_from=RUN; null is none."),
        (["init_from=nowhere"], "init_from.run: must be a run's directory, a file in its"),
        (
            ["init_from=base", "init_from.allow=[]"],
            "init_from.run: has not the tensors of this model",
        ),
        (["init_from=linear"], "attn: attn 'linear' reads one sum over the whole past, of which"),
        (
            [
                "init_from=base",
                "study.factors={model: [encoder]}",
                "study.baseline={model: decoder}",
            ],
            "task: 'language_modeling' cannot train a model of encoder, only of decoder.",
        ),
    ],
)
def test_a_study_that_cannot_start_is_refused(source, tmp_path, words, answer):
    write_source(tmp_path / "linear", [*SMALL, "attn=linear", "position=none"])
    with pytest.raises(ConfigError) as error:
        plan(*words)
    assert error.value.messages[0].startswith(answer), error.value
    assert words or len(error.value.messages) == 1


@pytest.mark.extended
def test_a_study_trains_its_variants_from_the_source_and_names_it(source, tmp_path):
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog " * 99)
    words = ["study=surgery", "init_from=base", *DATA, "schedule.warmup=0", "trainer.max_steps=2"]
    words += ["trainer.val_every=2", "trainer.limit_val_batches=1", "trainer.sample=false"]
    words += ["data=text", "data.path=text.txt", "data.seq_len=16", "study.seeds=1"]
    words += ["study.exclude=[{surgery: kv_heads_1}, {surgery: no_position}, {surgery: qk_norm}]"]
    done = train(words, tmp_path, environment(tmp_path))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "outputs/studies/surgery/report.md").read_text()
    assert "All variants start from base (last.ckpt, step 3, sha256 " in text
    assert "4 key heads are averaged into 2: decoder.*.attn.k.weight (2)" in text.replace("\\", "")
    run = min((tmp_path / "outputs/runs").iterdir())
    facts = json.loads((run / "summary.json").read_text())
    assert is_of_study(read_config(run), run, facts["data_fingerprint"])
    of_its_own = ["data=copy", "data.length=8", "data.test_length=null", "data.seq_len=20"]
    kept = [word for word in words if not word.startswith("data.path")]
    done = train([*kept, *of_its_own, "study.name=copy"], tmp_path, environment(tmp_path))
    answer = "failed: data: has tokens of its own, and must begin with those of init_from.run; got"
    assert done.returncode == 1 and done.stderr.count(answer) == 3
    refused = [*words, "init_from.allow=[]", "study.exclude=null"]
    done = train(refused, tmp_path, environment(tmp_path))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "init_from.run: has not the tensors of this model; " in done.stderr
