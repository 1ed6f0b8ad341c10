"""What a line makes impossible is refused before Lightning is imported and the data are read."""

import pytest

from tasks.run import init_from
from tasks.run.early_checks import check_sources, with_sources
from tasks.study.resolve import resolve
from tests.source_runs import write_source
from xformer_kit import ConfigError
from xformer_kit.config import compose, preflight
from xformer_kit.data.tokenizer import pretrained
from xformer_kit.registry import config_error
from xformer_kit.study import study_node

SMALL = ["model.dim=16", "model.layers=1", "attn.heads=2", "tokenizer=byte"]


@pytest.fixture
def run(tmp_path):
    """The files of a run from which another can start."""
    return write_source(tmp_path / "run", SMALL)


@pytest.mark.extended
def test_tensors_of_other_shapes_are_refused_with_any_vocabulary(run):
    for words in ([], ["model.vocab_size=300"], ["tokenizer=char"]):
        check_sources(
            [compose([*SMALL[: 3 + (not words)], *words, f"init_from={run}"], data=False)]
        )
    for words, fault in (
        (
            ["model.layers=2", "init_from.allow=[]"],
            "init_from.run: has not the tensors of this model; missing there: dec",
        ),
        (["model.dim=32"], "init_from.run: has no tensor that fits this model, such as embed"),
    ):
        config = compose([*SMALL, *words, f"init_from={run}"], data=False)
        with pytest.raises(ConfigError) as error:
            check_sources([config, config])
        (message,) = error.value.messages
        assert message.startswith(fault)
    allowed = ["model.layers=2", "init_from.allow=['decoder.1.*']"]
    check_sources([compose([*SMALL, *allowed, f"init_from={run}"], data=False)])


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path, run):
    rule = "tokenizer.path: must be a tokenizer.json of the library tokenizers; got "
    for text in ('{"model_type": "bert", "hidden_size": 8}', "no JSON", "[]", "1"):
        file = tmp_path / "other.json"
        file.write_text(text)
        words = [*SMALL[:3], "tokenizer=pretrained", f"tokenizer.path={file}"]
        with pytest.raises(ConfigError) as error:
            check_sources([compose(words, data=False)])
        assert str(error.value).startswith(f"{rule}'{file}'")
    check_sources([compose([*words[:-1], f"tokenizer.path={run}"], data=False)])


def test_a_tokenizer_that_cannot_be_had_is_refused(monkeypatch):
    def refuse(name):
        raise config_error("tokenizer.path", "no", name)

    monkeypatch.setattr(pretrained, "_download", refuse)
    config = compose(["tokenizer=pretrained", "tokenizer.path=some/model"], data=False)
    with pytest.raises(ConfigError, match=r"^tokenizer.path: no; got some/model\.$"):
        check_sources([config])


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("checkpoints.metric=val/accuracy", "train/loss, val/loss, val/perplexity"),
        ("callbacks.early_stopping.metric=val/exact_match", "train/loss, val/loss"),
        ("data=recall checkpoints.metric=val/bits_per_byte", "train/loss, val/loss"),
    ],
)
def test_a_metric_that_the_run_does_not_have_is_refused(words, known):
    path, metric = words.split()[-1].split("=")
    with pytest.raises(ConfigError) as error:
        preflight(words.split())
    (message,) = error.value.messages
    assert message.startswith(f"{path}: the run has no metric '{metric}'. ") and known in message
    assert len(preflight(["data=recall", "checkpoints.metric=val/accuracy"]).configs) == 1


def test_new_rows_are_counted_by_token():
    assert init_from._new_rows([(0, 0), (2, 1), (4, 4)], 4) == (2, 4)
    entry = {"source": "r", "run": "/r", "checkpoint": "best.ckpt", "step": 5, "copied": 20}
    entry |= {"missing": [], "unused": [], "reshaped": [], "resized": {}}
    entry["new_rows"] = {"embed.weight": (687, 1187), "head.weight": (687, 1187), "x": (0, 3)}
    assert init_from._line(entry, []) == (
        "Starting from r (best.ckpt, step 5): 20 tensors copied; 687 of 1,187 rows of embed.weight"
        " are new; 687 of 1,187 rows of head.weight are new."
    )


@pytest.mark.extended
def test_the_variants_of_a_study_are_checked_before_the_data_are_read(run, tmp_path, monkeypatch):
    def read(*_):
        raise AssertionError("the data were read")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tasks.study.resolve.Costs.of", read)
    factors = "study.factors={model.layers: [2]}"
    words = ["study=norm_placement", "study.baseline={model.layers: 1}", factors]
    budget = "study.budget={match: none, by: null}"
    words += ["study.claim=null", "study.name=early", budget]
    small = [word for word in SMALL if not word.startswith("model.layers")]
    line = preflight([*words, *small, f"init_from={run}", "init_from.allow=[]", "logger=none"])
    node = study_node.complete(line.study, line.study["name"])
    with pytest.raises(ConfigError, match=r"^init_from\.run: has not the tensors of this model"):
        resolve(node, with_sources(line.compose), line.argv)
