"""Metrics that a config names, built-in ones and a user's own: their values, and where they are
written.
"""

import csv
import json

import numpy as np
import pytest
import torch

from tasks.modules.configured_metrics import create_metrics, text_measures
from tasks.modules.language_modeling import count_correct
from tasks.modules.split_metrics import SplitMetrics
from tests.objective.objective_models import ids, made
from tests.user_components import forget_user_components
from xformer_kit.config import read_config
from xformer_kit.config.faults.result_names import result_names
from xformer_kit.data.batch import collate
from xformer_kit.metrics import METRICS
from xformer_kit.objective import cross_entropy
from xformer_kit.registry import ConfigError
from xformer_kit.study import study_node
from xformer_kit.study.metric import metric

CPU = torch.device("cpu")
MINE = '''
import torch
from torchmetrics import Metric
from xformer_kit.metrics import METRICS
from xformer_kit.registry import at_least


@METRICS.register("mean_rank")
class MeanRank(Metric):
    """Mean rank of the target among the classes, from 1."""

    higher_is_better = False

    def __init__(self, classes: int, *, cap: int = 1000):  # largest rank
        super().__init__()
        self.cap = min(cap, classes)
        self.add_state("ranks", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, cap=1)

    def update(self, logits, target):
        rank = 1 + (logits > logits.gather(1, target[:, None])).sum(1)
        self.ranks += rank.clamp(max=self.cap).sum()
        self.count += len(target)

    def compute(self):
        return self.ranks / self.count


@METRICS.register("inverse_rank")
class InverseRank(MeanRank):
    """The inverse of the mean rank, 1 at most."""

    higher_is_better = True

    def compute(self):
        return self.count / self.ranks


@METRICS.register("rank_of_no_direction")
class NoDirection(MeanRank):
    higher_is_better = None


@METRICS.register("two_numbers")
class TwoNumbers(MeanRank):
    def compute(self):
        return torch.stack([self.ranks, self.count])


@METRICS.register("raises")
class Raises(MeanRank):
    def compute(self):
        return torch.stack([self.ranks, self.count[None]])


@METRICS.register("no_metric")
class NoMetric:
    pass


@METRICS.register("perplexity")
class Perplexity(MeanRank):
    pass
'''


@pytest.fixture
def mine(tmp_path):
    file = tmp_path / "my_metrics.py"
    file.write_text(MINE)
    yield str(file)
    forget_user_components([METRICS])


def named(classes, **metrics):
    return create_metrics({"metrics": metrics}, classes, CPU, ["logits"])


def test_values_by_hand():
    """Targets 0, 1, 2, 2 have the ranks 1, 2, 3, 1. The logits lie in [0, 1], which torchmetrics
    takes as probabilities unless they are normalised before.
    """
    logits = torch.tensor([[0.9, 0.1, 0.0], [0.8, 0.7, 0.1], [0.5, 0.4, 0.2], [0.0, 0.1, 0.9]])
    target = torch.tensor([0, 1, 2, 2])
    found = named(3, accuracy={}, top_k_accuracy={"k": 2}, calibration_error={"bins": 1})
    for one in found.values():
        one.update(logits[:3], target[:3])
        one.update(logits[3:], target[3:])
    confidence = logits.softmax(-1).amax(-1).mean()
    assert {name: one.compute().item() for name, one in found.items()} == pytest.approx(
        {"accuracy": 0.5, "top_k_accuracy": 0.75, "calibration_error": abs(0.5 - confidence.item())}
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_the_correlation_of_classes_is_0_if_all_predictions_or_all_targets_are_equal(classes):
    """The convention of scikit-learn and GLUE; else that of Matthews, by hand."""

    def measured(predicted, true):
        found = create_metrics({"metrics": {"matthews": {}}}, classes, CPU, ["classes"])["matthews"]
        found.update(torch.eye(classes)[torch.tensor(predicted)], torch.tensor(true))
        return found.compute().item()

    some = [0, 0, 0, 0, 1]
    assert measured([0] * 5, some) == measured(some, [0] * 5) == measured([1] * 5, [1] * 5) == 0
    # TP 1, TN 3, FP 1, FN 0: (1 * 3 - 1 * 0) / sqrt(2 * 1 * 4 * 3)
    assert measured([0, 0, 0, 1, 1], some) == pytest.approx(3 / 24**0.5)


def test_error_rates_of_texts_by_hand():
    """One of five words and one of 16 characters differ."""
    config = {"metrics": {"word_error_rate": {}, "character_error_rate": {}, "accuracy": {}}}
    pairs = [("the cat sat", "the bat sat"), ("on it", "on it")]
    assert text_measures(config, pairs) == pytest.approx(
        {"word_error_rate": 1 / 5, "character_error_rate": 1 / 16}
    )
    assert text_measures(config, []) == {}


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("language_modeling", "decoder"),
        ("masked_language_modeling", "encoder"),
        ("seq2seq", "encoder_decoder"),
        ("seq2seq", "decoder"),
    ],
)
def test_padding_and_parts_change_no_metric(task, model, monkeypatch):
    """A padded batch, its rows, and parts of one logit each give the same loss and metrics."""
    objective, built = made(task, model, through="causal" if task != "seq2seq" else "prefix")
    draw = np.random.default_rng(0)
    texts = [draw.integers(0, 20, size) for size in (9, 4, 6)]
    pairs = [{"tokens": t, "source": t[:3], "target": t[3:]} for t in texts]
    kept = ("source", "target") if task == "seq2seq" else ("tokens",)
    examples = [
        objective.example({k: ids(*pair[k]) for k in kept}, torch.Generator().manual_seed(1))
        for pair in pairs
    ]

    def measured(batches):
        classes = built.vocab_size
        metrics = named(classes, accuracy={}, top_k_accuracy={}, calibration_error={"norm": "l2"})
        split = SplitMetrics(None, {}, CPU, metrics)
        with torch.no_grad():
            for batch in batches:
                split.evaluate(objective, built, collate(batch), None)
                plain = objective.loss(built, collate(batch))[:2]
                both = objective.loss_and_predictions(built, collate(batch))[0][:2]
                assert torch.equal(torch.stack(plain), torch.stack(both))
        return split.compute()

    whole = measured([examples])
    assert len(whole) == 5 and 0 < whole["top_k_accuracy"] < 1
    assert measured([[one] for one in examples]) == pytest.approx(whole)
    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", 1)
    assert measured([examples]) == pytest.approx(whole)


def test_accuracy_is_that_of_labelled_tokens():
    objective, built = made("language_modeling", "decoder")
    tokens = ids(*range(10))
    batch = collate([{"tokens": tokens, "labels": np.where(tokens % 3, tokens, -1)}])
    split = SplitMetrics(None, {}, CPU, named(built.vocab_size, accuracy={}))
    with torch.no_grad():
        split.evaluate(objective, built, batch, None)
        correct, labelled, *_ = count_correct(built, batch).tolist()
    assert labelled == 6 and split.compute()["accuracy"] == pytest.approx(correct / labelled)


def test_a_users_metric_is_in_every_row_and_in_the_summary(config, begin, mine):
    words = (f"components=[{mine}]", "metrics.mean_rank.cap=200", "metrics.accuracy={}")
    made_config = config(*words)
    assert made_config["metrics"] == {"mean_rank": {"cap": 200}, "accuracy": {}}
    code, run = begin("run", *words)
    assert code == 0
    rows = list(csv.DictReader((run / "metrics.csv").open(newline="")))
    values = [float(row["val/mean_rank"]) for row in rows if row["val/mean_rank"]]
    summary = json.loads((run / "summary.json").read_text())
    assert len(values) == 2 and 1 < values[1] < 200
    assert summary["val/mean_rank"] == pytest.approx(values[-1])
    assert "val/accuracy" in summary
    numbers = {k for k, v in summary.items() if isinstance(v, (int, float))}
    assert numbers - {"epoch_examples_dropped", "unigram_loss"} == {*result_names(made_config)}
    with pytest.raises(ConfigError, match=r"Did you mean 'val/mean_rank'\? Known: loss"):
        metric("val/mean_rnk")
    found = metric("val/mean_rank")
    assert not found.higher_is_better
    node = study_node.complete({"metric": "val/mean_rank"}, "asked")
    forget_user_components([METRICS])  # a report reads no file of components
    assert not metric(node["metric"], node["higher_is_better"]).higher_is_better


@pytest.mark.extended
@pytest.mark.parametrize(("name", "best"), [("mean_rank", min), ("inverse_rank", max)])
def test_the_mode_of_a_checkpoint_follows_the_class_of_a_users_metric(begin, mine, name, best):
    code, run = begin(
        "run",
        f"components=[{mine}]",
        f"metrics.{name}={{}}",
        f"checkpoints.metric=val/{name}",
        f"callbacks.early_stopping.metric=val/{name}",
        "optim.lr=3",  # the metric gets worse and better
        "trainer.val_every=2",
    )
    assert code == 0
    rows = list(csv.DictReader((run / "metrics.csv").open(newline="")))
    values = {int(row["step"]): row[f"val/{name}"] for row in rows if row[f"val/{name}"]}
    saved = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    assert saved["global_step"] == best(values, key=lambda step: float(values[step]))
    assert len(set(values.values())) > 1


def test_a_users_metric_without_a_direction_needs_a_mode(config, mine):
    words = (f"components=[{mine}]", "metrics.rank_of_no_direction={}")
    named = "checkpoints.metric=val/rank_of_no_direction"
    with pytest.raises(
        ConfigError, match=r"low or a high .* is better\. .*\.mode=min or checkpoints\.mode=max"
    ):
        config(*words, named)
    assert config(*words, named, "checkpoints.mode=max")["checkpoints"]["mode"] == "max"


def test_metrics_of_answers_and_of_the_test_set(begin, tmp_path):
    file = tmp_path / "pairs.tsv"
    lines = [f"{a} {b}\t{b} {a}\n" for a in "abcdefgh" for b in "abcdefgh"]
    file.write_text("".join(lines))
    words = [
        *(
            "task_defaults=null",
            "task=seq2seq",
            "model=encoder_decoder",
            "data=tsv",
            "data.test=0.2",
        ),
        *(f"data.path={file}", "model.layers=1", "trainer.max_steps=2", "trainer.val_every=2"),
        *("metrics.word_error_rate={}", "metrics.accuracy={}"),
    ]
    code, run = begin("run", *words)
    assert code == 0
    summary = json.loads((run / "summary.json").read_text())
    ours = {f"{split}/{name}" for split in ("val", "test") for name in ("word_error_rate",)}
    assert ours | {"val/accuracy", "test/accuracy"} <= summary.keys()
    numbers = {k for k, v in summary.items() if isinstance(v, (int, float))}
    assert numbers - {"epoch_examples_dropped"} <= {*result_names(read_config(run))}


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("two_numbers", "its compute must return one number; got a tensor (2,). Register one"),
        (
            "raises",
            "must be computable from 8 random predictions; got RuntimeError: stack expects",
        ),
        ("no_metric", "must be a torchmetrics.Metric; got NoMetric. Derive it from that."),
    ],
)
def test_a_metric_that_is_none_is_refused_before_training(begin, mine, capsys, name, fault):
    code, run = begin("run", f"components=[{mine}]", f"metrics.{name}={{}}")
    message = capsys.readouterr().err
    assert code == 2 and f"metrics.{name}: {fault}" in message
    assert name != "raises" or f"of '{mine}'." in message
    assert not (run / "metrics.csv").exists()


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ("metrics.mean_rank.cap=0", "metrics.mean_rank.cap: must be at least 1; got 0."),
        (
            "metrics.acuracy={}",
            "metrics.acuracy: no metric is called 'acuracy'. Did you mean 'accuracy'? Known:",
        ),
        ("metrics.accuracy.k=2", "metrics.accuracy.k: metric 'accuracy' has no option 'k'."),
        (
            "metrics.word_error_rate={}",
            "metrics.word_error_rate: is of texts, and task=language_modeling gives logits. Known",
        ),
        (
            "metrics.perplexity={}",
            "metrics.perplexity: is the name of a metric that is reported by every task",
        ),
        ("metrics=accuracy", "metrics: must map names to options; got 'accuracy'. Try metrics={},"),
    ],
)
def test_refused_metrics(config, mine, word, fault):
    with pytest.raises(ConfigError) as error:
        config(f"components=[{mine}]", word)
    assert fault in " ".join(error.value.messages)
    config(f"components=[{mine}]", "metrics.mean_rank={}")
    assert config("metrics.top_k.k=3")["metrics"] == {"top_k_accuracy": {"k": 3}}


def test_a_k_of_all_classes_is_refused(begin, capsys):
    code, _ = begin("run", "metrics.top_k_accuracy.k=256")
    assert code == 2
    assert "metrics.top_k_accuracy.k: must be below the number of classes; got 256 of 256." in (
        capsys.readouterr().err
    )
