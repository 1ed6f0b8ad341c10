"""The names of the numbers in the summary.json of a run, known before it trains."""

from collections.abc import Iterator

from xformer_kit.config.faults.data_faults import form_of
from xformer_kit.config.options.callbacks import monitored_metrics, only_observes
from xformer_kit.data.corpus import CORPORA
from xformer_kit.objective import OBJECTIVES, PER_TOKEN
from xformer_kit.plan import as_node
from xformer_kit.registry import Fault, Faults, Node, suggestion
from xformer_kit.registry.metric_names import PREFIX, TRAIN_LOSS

COSTS = (
    *("params", "flops_per_token", "tokens_per_second", "peak_memory_bytes", "seconds", "steps"),
    *("steps_left_out", "params_trained"),
)
ANSWERS = ("exact_match", "bleu", "chrf", "rougeL")  # the last three if targets have several words
LABELLED = ("accuracy", "sequence_accuracy")
STOPPING = "early_stopping"  # the callback of the package that does more than observe
_WRITERS = ", ".join(name for name, task in OBJECTIVES.items() if "texts" in task.outputs)
# Metrics that no option chooses, whose names a metric of one's own cannot have; and what has them.
RESERVED = {
    "loss": "every task",
    "perplexity": "every task with a loss per token",
    "bits_per_byte": "every task that predicts each token of a text",
    **dict.fromkeys(ANSWERS, f"tasks that write texts ({_WRITERS})"),
    "sequence_accuracy": "language_modeling of labelled examples",
}


def result_names(config: Node) -> list[str]:
    """Returns the names of all numbers that a run of a valid config can end with: val/loss, ...,
    test/..., and costs.
    """
    data, task = config["data"], as_node(config["task"])["name"]
    form, objective = form_of(data), OBJECTIVES[task]
    own = {"name", *CORPORA.options(data["name"])}
    corpus = CORPORA.create({key: value for key, value in data.items() if key in own})
    likelihood = ["loss", *["perplexity"] * (objective.loss_unit == PER_TOKEN)]
    if form == "text" and objective.predicts_every_token:
        likelihood.append("bits_per_byte")
    parts = ["", *(f"{part}/" for part in getattr(corpus, "of", ()))]
    predicted = [*(config.get("metrics") or {})]
    if form == "labelled" and task == "language_modeling":
        predicted += LABELLED
    if "texts" in objective.outputs:
        predicted += ANSWERS
    names = [f"val/{part}{name}" for part in parts for name in likelihood]
    names += [f"val/{name}" for name in predicted]
    names += [f"test/{name}" for name in _of_test_sets(corpus.splits, predicted)]
    decoding = ["decoding_tokens_per_second"] if config["trainer"].get("decode_tokens") else []
    return list(dict.fromkeys([*names, *COSTS, *decoding]))


def unknown_metric_faults(config: Node) -> Faults:
    """Yields the faults of options of a valid config that name a metric which its run does not
    have. A callback of the user's own may log others.
    """
    if any(not only_observes(name) for name in config.get("callbacks") or {} if name != STOPPING):
        return
    known = [name for name in result_names(config) if name.startswith(PREFIX)]
    for path, metric in monitored_metrics(config).items():
        if metric not in (TRAIN_LOSS, *known):
            fix = suggestion(metric, [TRAIN_LOSS, *known])
            yield Fault(path, f"the run has no metric '{metric}'", fix=fix)


def _of_test_sets(splits: tuple[str, ...], metrics: list[str]) -> Iterator[str]:
    """Yields the names of metrics of the test set, and of other splits such as hard_exact_match."""
    for split in splits:
        if split not in ("train", "valid"):
            prefix = "" if split == "test" else f"{split}_"
            yield from (f"{prefix}{name}" for name in metrics)
