"""The fault of an unknown choice of a group: it may be a name of another library, a file, a choice
of another group, or in a file of the current directory.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from xformer_kit.config.line.project_files import component_hint, config_hint
from xformer_kit.config.options.groups import GROUPS, OWN_FILE
from xformer_kit.registry import Fault, alternatives, did_you_mean, suggestion
from xformer_kit.registry.other_libraries import (
    NORMS_OF_BATCHES,
    OTHER_CHOICES,
    PUBLISHED,
    PUBLISHED_PAGE,
)
from xformer_kit.registry.other_options import corpus_of
from xformer_kit.text.command_lines import for_shell, program

MAX_NAMES = 10  # in a message
GROUPS["norm"].refused_names |= {
    name: Fault(
        "",
        f"'{name}' uses other tokens, and the norms here only the channels of one token",
        fix="Try layer or rms.",
    )
    for name in NORMS_OF_BATCHES
}
UNREAD = "It may be one of components, which could not be read."
NOT_REGISTERED = "The files in components register none of this name."


def unknown_choice(
    group: str, name: str, names: list[str], swept: bool, own_file: str = OWN_FILE
) -> Fault:
    """Returns the fault of an unknown choice; names: the known ones; swept: whether it is one of a
    sweep; own_file: the sentence on a component of the user's own.
    """
    if name.startswith("{") and swept:
        return Fault(
            group,
            "a plain sweep takes names, not options",
            got=name,
            fix=f"Sweep {group}.OPTION=..., or make them levels of a study's factor.",
        )
    if group in GROUPS and (
        GROUPS[group].refusal(name) is not None or GROUPS[group].find_name(name) is not None
    ):
        return GROUPS[group].unknown(name).at(group)
    rule = f"no {GROUPS[group].kind if group in GROUPS else group} is called '{name}'"
    if hint := config_hint(group, name):
        return Fault(group, rule, fix=hint)
    is_published = group in ("model", "experiment") and PUBLISHED.match(name)
    if is_published and not did_you_mean(name, names):
        rule += f"; {PUBLISHED_PAGE} has the lines of published architectures"
        return Fault(group, rule, fix=f"Try {OTHER_CHOICES.get(f'model={name}', 'model=decoder')}.")
    if ours := OTHER_CHOICES.get(f"{group}={name}"):
        if ours.startswith("kernel="):
            rule += "; FlashAttention is a kernel, which every attention can use"
        return Fault(group, rule, fix=f"Try {ours}.")
    if group == "data" and (fault := _file_fault(name)):
        return fault
    others = [
        f"{key}={name}"
        for key, registry in GROUPS.items()
        if name in registry or name in registry.aliases
    ]
    if others and group != "study" and not did_you_mean(name, names):
        return Fault(group, rule, fix=f"Try {alternatives(others)}.")
    if group in GROUPS:
        return unknown_component(group, name, own_file)
    return Fault(group, f"no choice is called '{name}'", fix=_similar(name, names))


def unknown_component(group: str, name: str, own_file: str = OWN_FILE) -> Fault:
    """Returns the fault of an unknown component of a group. own_file: see `unknown_choice`."""
    fault = GROUPS[group].unknown(name).at(group)
    if own_file == UNREAD:
        return replace(fault, fix=UNREAD)
    if hint := component_hint(name):
        return replace(fault, fix=hint)
    extensible = group != "logger" and not GROUPS[group].has_similar(name)
    return fault.with_fix(own_file.format(group)) if extensible else fault


def some_of(names: Sequence[str]) -> str:
    """Returns names with commas between them: if there are many, the first ones and how all are
    listed.
    """
    if len(names) <= MAX_NAMES:
        return ", ".join(names)
    first = ", ".join(names[:MAX_NAMES])
    return f"{first} and {len(names) - MAX_NAMES} more, which {program()} --help lists"


def _similar(name: str, names: Sequence[str]) -> str:
    """Returns the fix for an unknown name: of many names, the similar one or the first ones."""
    if len(names) <= MAX_NAMES:
        return suggestion(name, names)
    return did_you_mean(name, names).strip() or f"Known: {some_of(names)}."


def _file_fault(name: str) -> Fault | None:
    """Returns the fault of a file or a directory as the choice of data; None for another name."""
    path = Path(name)
    if not (path.suffix or "/" in name or path.is_dir()):
        return None
    fix = f"Try data={corpus_of(path.name)} data.path={for_shell(name)}."
    return Fault("data", f"no corpus is called '{name}'", fix=fix)
