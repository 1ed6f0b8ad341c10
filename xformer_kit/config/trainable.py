"""Can the task train the model that there is, on the corpus that there is?"""

from xformer_kit.config.data import at_hand, form_of, labelling, unread
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.extra import EXTRAS
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import STACKS, as_node
from xformer_kit.registry import Fault, Faults, Node, alternatives


def vocabulary(config: Node) -> tuple[int, str]:
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
        size, bound = getattr(tokenizer, "min_vocab_size", 0), " or more"
    return (size + len(OBJECTIVES.create(as_node(config["task"])).specials) if size else 0), bound


def suits(config: Node) -> Faults:
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
            fix=f"Choose {alternatives(ways)}.",
        )
    yield from unread(task, objective.reads, config["data"])


def _with_data(task: str, config: Node) -> str:
    """The choice of a task, with a corpus that it can learn from if the config's gives something
    else.
    """
    reads = OBJECTIVES[task].reads
    return (
        f"task={task}" if form_of(config["data"]) in reads else f"task={task} data={at_hand(reads)}"
    )


def further(config: Node) -> Faults:
    """Whether the task trains what extras predict in addition to the next token."""
    task = as_node(config["task"])["name"]
    able = [f"task={name}" for name, objective in OBJECTIVES.items() if objective.further]
    for name in config.get("extra") or {}:
        if EXTRAS[name].overrides("further") and f"task={task}" not in able:
            yield Fault(
                f"extra.{name}",
                f"task '{task}' does not train its predictions",
                fix=f"Leave it out, or choose {alternatives(able)}.",
            )
