"""Classification and regression: the pooled state, padding, labels, losses and refusals."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tasks.cli import main
from tasks.cli.likelihood import validation_likelihood
from tasks.generation.labels import label_texts
from tasks.modules.configured_metrics import create_metrics
from tasks.run.start import start_run
from tests.objective.objective_models import Tokenizer, generator, ids, stacks_of
from tests.tasks.conftest import TINY
from xformer_kit import ConfigError, compose
from xformer_kit.data.batch import collate
from xformer_kit.data.corpus import CORPORA
from xformer_kit.model.build import build_model
from xformer_kit.objective import objective_of
from xformer_kit.objective.text_head import pool

CLASSES = ["no", "yes", "maybe"]


LABELS = ["no", "yes", "maybe", "2.5", "- 1e3", "<unk>"]


class Labels(Tokenizer):
    """Token i is the i-th label; the fourth is decoded with a space, as by WordPiece."""

    def encode(self, text):
        return ids(LABELS.index(text.lower()) if text.lower() in LABELS else 5)

    def decode(self, ids):
        return LABELS[int(ids[0])]

    def count_unknown(self, ids):
        return int((ids == 5).sum())


def made(task, model="encoder", **options):
    config = stacks_of(model, mask="causal")
    if task == "classification":
        options = {"classes": CLASSES} | options
    objective = objective_of(config | {"task": {"name": task, **options}})
    objective.tokenizer = objective.source_tokenizer = Labels(objective.specials)
    built = build_model(config, objective.tokenizer.size).double().eval()
    with torch.no_grad():
        for parameter in built.parameters():
            noise = torch.randn(parameter.shape, generator=generator(3), dtype=torch.float64)
            parameter.copy_(0.4 * noise)
    return objective, built


def example_of(objective, source, target):
    return objective.example({"source": ids(*source), "target": ids(target)}, generator())


def test_pooled_states_by_hand():
    hidden = torch.arange(12.0).view(2, 3, 2)
    real = torch.tensor([[True, True, False], [True, True, True]])
    assert pool(hidden, real, "first").tolist() == [[0, 1], [6, 7]]
    assert pool(hidden, real, "last").tolist() == [[2, 3], [10, 11]]
    assert pool(hidden, real, "mean").tolist() == [[1, 2], [8, 9]]
    left = real.flip(1)  # padding on the left
    assert pool(hidden, left, "first").tolist() == [[2, 3], [6, 7]]
    assert pool(hidden, None, "last").tolist() == [[4, 5], [10, 11]]


def test_examples_have_the_summary_token_where_it_is_read():
    first, _ = made("classification")
    assert example_of(first, [5, 6], 1)["tokens"].tolist() == [20, 5, 6]
    last, _ = made("classification", "decoder")
    found = example_of(last, [5, 6], 2)
    assert (found["tokens"].tolist(), found["labels"].tolist()) == ([5, 6, 20], [2])
    mean, _ = made("classification", "decoder", pool="mean")
    assert example_of(mean, [5, 6], 2)["tokens"].tolist() == [20, 5, 6]


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("model", ["encoder", "decoder"])
@pytest.mark.parametrize("how", [None, "mean", "last"])
def test_a_padded_batch_equals_its_rows(task, model, how):
    objective, built = made(task, model, pool=how)
    labels = (0, 2, 1) if task == "classification" else (3, 4, 3)
    texts = ([1, 2, 3, 4, 5], [6, 7], [8, 9, 10])
    examples = [example_of(objective, t, y) for t, y in zip(texts, labels, strict=True)]
    nats, count, _ = objective.loss(built, collate(examples))
    rows = [objective.loss(built, collate([one])) for one in examples]
    assert int(count) == 3 and nats > 0
    torch.testing.assert_close(nats, sum(row[0] for row in rows), rtol=1e-6, atol=1e-6)
    whole, _ = objective.head_outputs(built, collate(examples))
    each = torch.cat([objective.head_outputs(built, collate([one]))[0] for one in examples])
    torch.testing.assert_close(whole, each, rtol=1e-5, atol=1e-5)


def test_the_head_is_a_linear_map_of_the_pooled_state():
    """W h + b with the rows of the classes, and the cross-entropy over them only."""
    objective, built = made("classification")
    batch = collate([example_of(objective, [1, 2], 1), example_of(objective, [3], 0)])
    hidden = built.hidden(batch["tokens"])[0][:, 0]
    expected = F.linear(hidden, built.head.weight[21:24]).float()
    (nats, _, _), ((logits, target),) = objective.loss_and_predictions(built, batch)
    torch.testing.assert_close(logits, expected)
    assert target.tolist() == [1, 0]
    torch.testing.assert_close(nats, F.cross_entropy(expected, target, reduction="sum"))
    assert objective.num_classes(built) == 3
    smooth, model = made("classification", label_smoothing=0.1)
    assert torch.equal(smooth.loss(model.eval(), batch)[0], nats)
    assert not torch.equal(smooth.loss(model.train(), batch)[0], nats)


def test_regression_is_the_squared_error():
    objective, built = made("regression")
    batch = collate([example_of(objective, [1, 2], 3), example_of(objective, [3], 4)])
    (error, count, _), ((values, target),) = objective.loss_and_predictions(built, batch)
    assert target.tolist() == [2.5, -1000.0] and int(count) == 2
    torch.testing.assert_close(error, ((values - target) ** 2).sum())


def test_labels_that_the_data_should_not_have():
    classes, _ = made("classification")
    classes.check_examples([{"target": ids(0)}, {"target": ids(2)}])
    with pytest.raises(ConfigError, match=r"^task\.classes: no class is called '2\.5', which is a"):
        classes.check_examples([{"target": ids(0)}, {"target": ids(3)}])
    numbers, _ = made("regression")
    numbers.check_examples([{"target": ids(3)}, {"target": ids(4)}])
    with pytest.raises(ConfigError, match=r"^task: regression learns from numbers, .* got 'yes'\."):
        numbers.check_examples([{"target": ids(1)}])
    for one in (classes, numbers):
        with pytest.raises(ConfigError, match=r"^task.* '<unk>'"):
            one.check_examples([{"target": ids(5)}])
    same, _ = made("classification", classes=["no", "NO"])
    with pytest.raises(ConfigError, match=r"^tokenizer: must tell .*; got 'no' and 'NO'\. Use"):
        same.check_examples([{"target": ids(0)}])


def test_metrics_of_glue():
    """F1 of the second class, Matthews' correlation from the confusion matrix, both correlations of
    numbers against numpy.
    """
    predicted, target = torch.tensor([1, 1, 1, 0, 0, 0, 1]), torch.tensor([1, 1, 0, 0, 0, 1, 1])
    tp, fp, fn, tn = 3, 1, 1, 2
    expected = {
        "f1": tp / (tp + (fp + fn) / 2),
        "matthews": (tp * tn - fp * fn) / ((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)) ** 0.5,
    }
    found = create_metrics({"metrics": {"f1": {}, "matthews": {}}}, 2, torch.device("cpu"))
    for one in found.values():
        one.update(F.one_hot(predicted).float(), target)
    assert {k: one.compute().item() for k, one in found.items()} == pytest.approx(expected)
    x, y = torch.tensor([0.5, 2.0, 1.0, 9.0]), torch.tensor([1.0, 3.0, 3.5, 20.0])
    found = create_metrics({"metrics": {"pearson": {}, "spearman": {}}}, 1, torch.device("cpu"))
    for one in found.values():
        one.update(x[:3], y[:3])
        one.update(x[3:], y[3:])
    ranks = np.corrcoef([0, 2, 1, 3], [0, 1, 2, 3])[0, 1]
    assert {k: one.compute().item() for k, one in found.items()} == pytest.approx(
        {"pearson": np.corrcoef(x.numpy(), y.numpy())[0, 1], "spearman": ranks}, rel=1e-5
    )


def test_a_run_learns_and_is_evaluated_and_labels_texts(tmp_path, monkeypatch, capfdbinary):
    """Whether a text has an x; the accuracy of the test set is above that of the larger class, and
    that of the labels that the command writes for its texts.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file, draw = tmp_path / "labels.tsv", np.random.default_rng(0)
    texts = ["".join(draw.choice(list("abcdx"), 5, p=[0.22] * 4 + [0.12])) for _ in range(400)]
    lines = [f"{text}\t{int('x' in text)}\n" for text in dict.fromkeys(texts)]
    file.write_text("sentence\tlabel\n" + "".join(lines))
    words = [word for word in TINY if not word.startswith("data=")]
    config = compose(
        [
            *("task=classification", "task.classes=[0,1]", "data=tsv", f"data.path={file}"),
            *("data.columns=[sentence,label]", "data.test=0.2", "data.valid=0.2", *words),
            *("optim.lr=1e-2", "trainer.max_steps=60", "schedule.warmup=5", "trainer.val_every=60"),
            *("trainer.checkpoint_every=60", "data.batch_size=32"),
        ]
    )
    assert start_run(config, tmp_path / "run") == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["test/accuracy"] > 0.8 and summary["val/f1"] > 0.8
    header = (tmp_path / "run" / "metrics.csv").read_text().partition("\n")[0]
    assert "perplexity" not in header + " ".join(summary)  # exp of nats per text
    from tasks.cli.command import load_run

    run = load_run(_args(tmp_path / "run"), default="last")
    found = validation_likelihood(run)
    for name in ("val/loss", "val/accuracy", "val/f1", "val/matthews"):
        assert found[name] == pytest.approx(summary[name], rel=1e-5)
    assert found["texts"] > 20 and "tokens" not in found
    node = {"name": "tsv", "path": str(file), "columns": ["sentence", "label"], "test": 0.2}
    pairs = [*CORPORA.create(node).pairs("test")]
    assert summary["test/accuracy"] == pytest.approx(_accuracy(tmp_path, pairs), abs=1e-6)
    capfdbinary.readouterr()
    assert main(["generate", str(tmp_path / "run"), "--prompt", "axa"]) == 0
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert [line.split()[2] for line in lines] == ["1", "0"]  # the likeliest first
    assert sum(float(line.split()[0]) for line in lines) == pytest.approx(100, abs=0.02)


def _accuracy(folder, pairs):
    """The share of right labels of `xformer generate`."""
    (folder / "in.txt").write_text("".join(f"{text}\n" for text, _ in pairs))
    files = ("--input", str(folder / "in.txt"), "--output", str(folder / "out.txt"))
    assert main(["generate", str(folder / "run"), *files, "--checkpoint", "last"]) == 0
    labels = (folder / "out.txt").read_text().split()
    return np.mean([a == b for a, (_, b) in zip(labels, pairs, strict=True)])


def test_labels_that_are_predicted_by_hand():
    classes, _ = made("classification")
    found = classes.predicted_labels(torch.tensor([0.0, 3.0, 1.0]).log())
    assert [name for name, _ in found] == ["yes", "maybe", "no"]
    assert [p for _, p in found] == pytest.approx([0.75, 0.25, 0])
    numbers, _ = made("regression")
    assert numbers.predicted_labels(torch.tensor([-2.5])) == [("-2.5", None)]


def test_a_long_text_is_cut_off_only_if_the_corpus_was():
    objective, built = made("classification")
    objective.source_tokenizer = Texts(objective.specials)
    run = SimpleNamespace(model=built, objective=objective)
    run.config = {"data": {"seq_len": 4, "too_long": "truncate"}}
    assert label_texts(run, ["abcde"], "--prompt") == label_texts(run, ["abc"], "--prompt")
    several = label_texts(run, ["ab", "c", "bca"], "--input", batch_size=2)
    for labels, text in zip(several, ["ab", "c", "bca"], strict=True):
        ((name, p), *_), ((one, q), *_) = labels, label_texts(run, [text], "--prompt")[0]
        assert name == one and p == pytest.approx(q, rel=1e-5)
    run.config["data"]["too_long"] = "drop"
    with pytest.raises(ConfigError, match=r"^--input, line 2: must have at most 3 tokens"):
        label_texts(run, ["a", "abcd"], "--input")
    with pytest.raises(ConfigError, match=r"^--prompt: must hold at least one token; got an empty"):
        label_texts(run, [""], "--prompt")


class Texts(Tokenizer):
    """Token i is the i-th letter."""

    def encode(self, text):
        return ids(*(ord(letter) - ord("a") for letter in text))

    def count_unknown(self, ids):
        return 0


def _args(run):
    return SimpleNamespace(run=str(run), checkpoint="last", components=[], json=False)


@pytest.mark.parametrize("model", ["", "model=decoder"])
@pytest.mark.parametrize(
    ("task", "metrics"),
    [
        ("task=classification task.classes=[0,1]", ["accuracy", "f1", "matthews"]),
        ("task=regression", ["pearson", "spearman"]),
    ],
)
def test_a_task_brings_its_metrics_and_an_encoder(task, metrics, model, tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\t1\n" * 8)
    path = f"data=tsv data.path={tmp_path / 'pairs.tsv'}"
    config = compose(f"{task} {model} {path}".split())
    assert [*config["metrics"]] == metrics
    stack = "decoder" if model else "encoder"
    assert stack in config["model"] and config["tokenizer"]["name"] == "bpe"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("task.classes=[a]", "task.classes: must name two classes or more, each once; got ['a']."),
        ("task.classes=[1,1]", "task.classes: must name two classes or more, each once; got"),
        (
            "task.classes=[0,1] model=decoder task.pool=first",
            "mask: mask 'causal' hides the text from its first token, which task.pool=first reads.",
        ),
        (
            "task.classes=[0,1] metrics.pearson={}",
            "metrics.pearson: is of values, and task=classification gives logits or classes. Known",
        ),
        ("task.classes=[0,1] task.pool=max", "task.pool: must be"),
    ],
)
def test_refused_configs(words, fault):
    with pytest.raises(ConfigError) as error:
        compose(["task=classification", "data=scan", "tokenizer=word", *words.split()])
    assert fault in "\n".join(error.value.messages)
