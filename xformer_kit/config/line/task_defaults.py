"""What the task of a command line changes in the default run.

A file of `conf/task_defaults` holds the data, the model and the sizes of a task. It is composed
before the experiment, so that an experiment holds only its differences from the run without it.
"""

from collections.abc import Iterable, Sequence

from hydra.core.override_parser.types import Override

from xformer_kit.config.faults.data_faults import form_of
from xformer_kit.config.hydra.hydra_session import TASK_DEFAULTS, HydraSession, hydra_word
from xformer_kit.data.corpus import CORPORA
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import STACKS, Node, as_node
from xformer_kit.registry import Fault

CHOOSE_MODEL = ("model", "experiment", "preset")  # groups that decide which stacks there are


def task_defaults(session: HydraSession, overrides: Sequence[Override]) -> list[str]:
    """Returns the override `task_defaults=[...]` of the line's task, or none.

    The choices are the first that exists of <task>_<data>, <task>_<form of the data> and <task>,
    then the mask that the task needs with the stacks of the composed model (`Objective.masks`).
    """
    single = [o for o in overrides if not o.is_sweep_override() and not o.is_delete()]
    values = {o.key_or_group: o.value() for o in single}
    task, keys = OBJECTIVES.find_name(values.get("task")), {o.key_or_group for o in overrides}
    if task is None or TASK_DEFAULTS in keys:
        return []
    names = [task]
    if data := CORPORA.find_name(values.get("data")):
        names = [f"{task}_{suffix}" for suffix in (data, *CORPORA[data].forms())] + names
    known = session.choices(TASK_DEFAULTS)
    chosen = [name for name in names if name in known][:1]
    if "mask" not in keys and (masks := OBJECTIVES[task].masks):
        of_model = [o for o in single if o.key_or_group in CHOOSE_MODEL]
        chosen += [
            f"{mask}_mask" for mask in [masks.get(_stacks(session, chosen, of_model))] if mask
        ]
    return [f"{TASK_DEFAULTS}=[{','.join(chosen)}]"] if chosen else []


def with_file_hint(
    session: HydraSession, overrides: Sequence[Override], config: Node, faults: Iterable[Fault]
) -> list[Fault]:
    """Returns faults; that of a task which is set in a file, with data of another task, gets a
    hint: only the command line's own task=X has defaults by itself.
    """
    faults = list(faults)
    task, keys = as_node(config.get("task")).get("name"), {o.key_or_group for o in overrides}
    by_command_line = bool({"task", "data", TASK_DEFAULTS} & keys)
    if by_command_line or task not in session.choices(TASK_DEFAULTS) or task not in OBJECTIVES:
        return faults
    data = as_node(config.get("data"))
    if data.get("name") not in CORPORA or form_of(data) in OBJECTIVES[task].reads:
        return faults
    hint = f"A file brings it by the entry `override /{TASK_DEFAULTS}: {task}` of its defaults."
    return [fault.with_fix(hint) if fault.path == "task" else fault for fault in faults]


def _stacks(session: HydraSession, chosen: list[str], of_model: list[Override]) -> str:
    """Returns the stacks of the composed model: decoder, encoder or encoder_decoder."""
    words = [hydra_word(session, override) for override in of_model]
    layers = [f"{TASK_DEFAULTS}=[{','.join(chosen)}]"] if chosen else []
    model = session.compose_choices(*layers, *words).model
    return "_".join(stack for stack in STACKS if stack in model)
