"""Can the task train the model that there is, on the corpus that there is?"""

from collections.abc import Iterator, Mapping
from typing import Any

from xformer_kit.config.data import at_hand, form_of, labelling, unread
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import STACKS, as_node
from xformer_kit.registry import Fault, listed


def vocabulary(config: Mapping[str, Any]) -> tuple[int, str]:
    """The number of tokens that there are at least, 0 where nothing is known before the text is
    read, and how to say that there may be more.
    """
    probe, bound = labelling(config["data"]), ""
    name = as_node(config.get("tokenizer")).get("name")
    tokenizer = TOKENIZERS.get(name)
    size = len(probe.words()) if probe is not None else getattr(tokenizer, "vocab_size", None)
    # as an option it is only an upper bound
    if probe is None and tokenizer is not None and "vocab_size" in TOKENIZERS.options(name):
        size = None
    if not isinstance(size, int):
        size, bound = getattr(tokenizer, "fewest", 0), " or more"
    return (size + len(OBJECTIVES.create(as_node(config["task"])).specials) if size else 0), bound


def suits(config: Mapping[str, Any]) -> Iterator[Fault]:
    """Whether the task can train the stacks that there are, on the corpus that there is."""
    task = as_node(config["task"])["name"]
    objective, there = (
        OBJECTIVES[task],
        tuple(stack for stack in STACKS if stack in config["model"]),
    )
    if there not in objective.needs:
        ways = [f"model={'_'.join(stacks)}" for stacks in objective.needs]
        ways += [
            _with_data(name, config) for name, other in OBJECTIVES.items() if there in other.needs
        ]
        yield Fault(
            "task",
            f"'{task}' cannot train a model of {' and '.join(there)}",
            fix=f"Choose {listed(ways)}.",
        )
    yield from unread(task, objective.reads, config["data"])


def _with_data(task: str, config: Mapping[str, Any]) -> str:
    """The choice of a task, with a corpus that it can learn from if the config's gives something
    else.
    """
    reads = OBJECTIVES[task].reads
    return (
        f"task={task}" if form_of(config["data"]) in reads else f"task={task} data={at_hand(reads)}"
    )


def future(config: Mapping[str, Any]) -> Iterator[Fault]:
    """Whether the task trains what the model has for tokens behind the next one, and in what
    length.
    """
    node, tokens = as_node(config["task"]), config["model"].get("future_tokens", 1)
    seq_len = config["data"].get("seq_len")
    if tokens > 1 and not OBJECTIVES[node["name"]].future:
        able = " or ".join(
            f"task={name}" for name, objective in OBJECTIVES.items() if objective.future
        )
        yield Fault(
            "model.future_tokens",
            f"task '{node['name']}' does not train the blocks of later tokens",
            got=f"{tokens}",
            fix=f"Set it to 1, or choose {able}.",
        )
    if seq_len is not None and tokens > seq_len:
        yield Fault(
            "model.future_tokens",
            "must be at most data.seq_len, or the last has no target",
            got=f"{tokens} and {seq_len}",
        )
    if tokens == 1 and node.get("future_weight", 1.0) != 1.0:
        yield Fault(
            "task.future_weight",
            "weighs tokens behind the next one, which model.future_tokens=1 does not predict",
            got=f"{node['future_weight']}",
            fix="Leave it out, or try model.future_tokens=4.",
        )
