"""The names of the numbers in the summary.json of a run, known before it trains."""

from collections.abc import Iterator

from xformer_kit.config.faults.data_faults import created_corpus, form_of
from xformer_kit.config.options.callbacks import may_log, monitored_metrics
from xformer_kit.metrics import KNOWN, METRICS, TEST, TRAIN_LOSS, VAL
from xformer_kit.objective import OBJECTIVES, PER_TOKEN
from xformer_kit.plan import as_node
from xformer_kit.registry import Fault, Faults, Node, suggestion

COSTS = (
    *("params", "flops_per_token", "tokens_per_second", "peak_memory_bytes", "seconds", "steps"),
    *("steps_left_out", "params_trained"),
)
_WRITERS = ", ".join(name for name, task in OBJECTIVES.items() if "texts" in task.outputs)
TASKS = {
    "every": "every task",
    "per_token": "every task with a loss per token",
    "every_token": "every task that predicts each token of a text",
    "labelled": "language_modeling of labelled examples",
    "texts": f"tasks that write texts ({_WRITERS})",
}
# Metrics that no option chooses, whose names a metric of one's own cannot have; and what has them.
RESERVED = {
    name: TASKS[known.tasks] for name, known in KNOWN.items() if known.tasks and name not in METRICS
}


def result_names(config: Node) -> list[str]:
    """Returns the names of all numbers that a run of a valid config can end with: val/loss, ...,
    test/..., and costs.
    """
    data, task = config["data"], as_node(config["task"])["name"]
    form, objective = form_of(data), OBJECTIVES[task]
    corpus = created_corpus(data)
    has = {
        "every": True,
        "per_token": objective.loss_unit == PER_TOKEN,
        "every_token": form == "text" and objective.predicts_every_token,
        "labelled": form == "labelled" and task == "language_modeling",
        "texts": "texts" in objective.outputs,
    }
    found = {name: known for name, known in KNOWN.items() if known.tasks and has[known.tasks]}
    parts = ["", *(f"{part}/" for part in getattr(corpus, "of", ()))]
    predicted = [*(config.get("metrics") or {}), *(n for n in found if not found[n].of_loss)]
    names = [f"{VAL}{part}{name}" for part in parts for name in found if found[name].of_loss]
    names += [f"{VAL}{name}" for name in predicted]
    names += [f"{TEST}{name}" for name in _of_test_sets(corpus.splits, predicted)]
    decoding = ["decoding_tokens_per_second"] if config["trainer"].get("decode_tokens") else []
    return list(dict.fromkeys([*names, *COSTS, *decoding]))


def unknown_metric_faults(config: Node) -> Faults:
    """Yields the faults of options of a valid config that name a metric which its run does not
    have. A callback of the user's own may log others.
    """
    if may_log(config):
        return
    known = [name for name in result_names(config) if name.startswith(VAL)]
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
