"""Checks of a config's task: whether it can train the model and learn from the corpus."""

from xformer_kit.config.faults.data_faults import (
    form_faults,
    labelled_corpus,
)
from xformer_kit.config.faults.result_names import RESERVED
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.extra import EXTRAS
from xformer_kit.files.user_errors import user_errors
from xformer_kit.metrics import METRICS
from xformer_kit.metrics.registered import inputs_of
from xformer_kit.objective import OBJECTIVES, trained_stacks
from xformer_kit.plan import STACKS, as_node
from xformer_kit.registry import Fault, Faults, Node, alternatives

DEFAULT_TASK = "language_modeling"  # of conf/train.yaml


def least_vocabulary_size(config: Node) -> tuple[int, str]:
    """Returns the size of the vocabulary with the special tokens, as far as it is known before the
    corpus is read, and " or more" if it is only a lower bound, otherwise "". The size is 0 if
    nothing is known.
    """
    specials = len(OBJECTIVES.create(as_node(config["task"])).specials)
    if (probe := labelled_corpus(config["data"])) is not None:
        with user_errors([("data", type(probe))]):
            return len(probe.words()) + specials, ""
    name = as_node(config.get("tokenizer")).get("name")
    tokenizer = TOKENIZERS.get(name)
    size = getattr(tokenizer, "vocab_size", None)
    # An option vocab_size is only an upper bound.
    if isinstance(size, int) and "vocab_size" not in TOKENIZERS.options(name):
        return size + specials, ""
    size = getattr(tokenizer, "min_vocab_size", 0)
    return (size + specials if size else 0), " or more"


def task_faults(config: Node) -> Faults:
    """Yields the faults of a task that cannot train the model's stacks, or cannot learn from the
    corpus.
    """
    task, data = as_node(config["task"])["name"], config["data"]
    objective = OBJECTIVES[task]
    stacks = tuple(stack for stack in STACKS if stack in config["model"])
    if stacks not in objective.needs:
        models = [f"model={'_'.join(needed)}" for needed in objective.needs]
        tasks = [
            f"task={name}"
            for name, other in OBJECTIVES.items()
            if stacks in other.needs and not other.own_data
        ]
        # With the default task, the model was chosen.
        fixes = [*tasks, *models] if task == DEFAULT_TASK else [*models, *tasks]
        yield Fault(
            "task",
            f"'{task}' cannot train a model of {' and '.join(stacks)}, only of"
            f" {trained_stacks(objective)}",
            fix=f"Choose {alternatives(fixes)}.",
        )
    yield from form_faults(task, objective.reads, data)


def extra_prediction_faults(config: Node) -> Faults:
    """Yields the faults of extras whose predictions, besides the next token, the task does not
    train.
    """
    task = as_node(config["task"])["name"]
    able = [f"task={name}" for name, objective in OBJECTIVES.items() if objective.multi_token]
    for name in config.get("extra") or {}:
        if EXTRAS[name].overrides("multi_token_states") and f"task={task}" not in able:
            yield Fault(
                f"extra.{name}",
                f"task '{task}' does not train its predictions",
                fix=f"Leave it out, or choose {alternatives(able)}.",
            )


METRICS.refused_names |= {
    name: Fault("", f"is reported without an option by {which}", fix="Leave it out.")
    for name, which in RESERVED.items()
}


def metric_faults(config: Node) -> Faults:
    """Yields the faults of metrics that cannot be computed from what the task predicts, or that
    have the name of another.
    """
    task = as_node(config["task"])["name"]
    given = OBJECTIVES[task].outputs
    for name in config.get("metrics") or {}:
        if name in RESERVED:
            fix = "Register it under another name."
            reported = f"is the name of a metric that is reported by {RESERVED[name]}"
            yield Fault(f"metrics.{name}", reported, fix=fix)
        elif inputs_of(name) not in given:
            able = [other for other in METRICS if inputs_of(other) in given]
            yield Fault(
                f"metrics.{name}",
                f"is of {inputs_of(name)}, and task={task} gives {alternatives(given) or 'none'}",
                fix=f"Known for it: {', '.join(able)}." if able else "Leave it out.",
            )
