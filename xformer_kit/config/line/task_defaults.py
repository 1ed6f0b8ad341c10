"""What the task of a command line changes in the default run.

A file of `conf/task_defaults` holds the data, the model and the sizes of a task. It is composed
before the experiment, so that an experiment holds only its differences from the run without it.
"""

from collections.abc import Sequence

from hydra.core.override_parser.types import Override

from xformer_kit.config.hydra.hydra_session import (
    TASK_DEFAULTS,
    HydraSession,
    compose_line,
    hydra_word,
)
from xformer_kit.config.line.composition_errors import COMPOSITION_ERRORS
from xformer_kit.data.corpus import CORPORA
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import STACKS

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


def _stacks(session: HydraSession, chosen: list[str], of_model: list[Override]) -> str:
    """Returns the stacks of the composed model: decoder, encoder or encoder_decoder."""
    words = [hydra_word(session, override) for override in of_model]
    layers = [f"{TASK_DEFAULTS}=[{','.join(chosen)}]"] if chosen else []
    model = session.compose_choices(*layers, *words).model
    return "_".join(stack for stack in STACKS if stack in model)


def task_of_model(session: HydraSession, overrides: Sequence[Override]) -> list[str]:
    """Returns the override of a task that can train the stacks of the composed model on a text, if
    the overrides choose no task and the default cannot; without its `task_defaults`, so that sizes
    are those of the model.
    """
    of_model = [o for o in overrides if o.key_or_group.partition(".")[0] in ("model", "preset")]
    keys = {o.key_or_group for o in overrides}
    if not of_model or not keys.isdisjoint({"task", "experiment", TASK_DEFAULTS}):
        return []
    try:
        composed = compose_line(session, of_model, whole=False)
        stacks = tuple(stack for stack in STACKS if composed.model.get(stack) is not None)
        if stacks in OBJECTIVES[composed.task.name].needs:  # the default, or that of a preset
            return []
    except COMPOSITION_ERRORS:  # reported when the whole line is composed
        return []
    for task, objective in OBJECTIVES.items():
        if stacks in objective.needs and "text" in objective.reads and not objective.own_data:
            return [f"task={task}"]
    return []
