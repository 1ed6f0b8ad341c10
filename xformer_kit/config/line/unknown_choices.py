"""The fault of an unknown choice of a group: it may be a name of another library, a file, a choice
of another group, or in a file of the current directory.
"""

from collections.abc import Sequence
from pathlib import Path

from xformer_kit.config.options.groups import GROUPS, OWN_FILE
from xformer_kit.registry import Fault, alternatives, did_you_mean, suggestion
from xformer_kit.registry.messages import nearest
from xformer_kit.registry.other_libraries import (
    NORMS_OF_BATCHES,
    OTHER_CHOICES,
    PUBLISHED,
    PUBLISHED_PAGE,
)
from xformer_kit.registry.other_options import corpus_of
from xformer_kit.text.command_lines import for_shell, program

MAX_NAMES = 10  # in a message
PLUGIN_GROUPS = ("hydra/launcher", "hydra/sweeper")  # groups to which packages add choices
# What installs the packages of choices.
INSTALLED_BY = {
    "hydra/launcher=joblib": "pip install 'xformer_kit[study]'",
    "hydra/launcher=submitit_local": "pip install 'xformer_kit[slurm]'",
    "hydra/launcher=submitit_slurm": "pip install 'xformer_kit[slurm]'",
    # It declares cloudpickle<3, which it needs on AWS only.
    "hydra/launcher=ray": "pip install 'xformer_kit[ray]' and then pip install --no-deps"
    " hydra-ray-launcher",
}
GROUPS["norm"].refused_names |= {
    name: Fault(
        "",
        f"'{name}' uses other tokens, and the norms here only the channels of one token",
        fix="Try layer or rms.",
    )
    for name in NORMS_OF_BATCHES
}


def unknown_choice(group: str, name: str, names: list[str]) -> Fault:
    """Returns the fault of an unknown choice; names: the known ones."""
    registry = GROUPS.get(group)
    if registry is not None and (registry.refusal(name) or registry.find_name(name)):
        return registry.unknown(name).at(group)
    if command := INSTALLED_BY.get(f"{group}={name}"):
        return Fault(group, "needs a package that is not installed", name, f"Use {command}.")
    rule = f"no {registry.kind if registry is not None else group} is called '{name}'"
    if group in ("model", "experiment") and PUBLISHED.match(name) and not nearest(name, names):
        rule += f"; a published architecture is a preset ({PUBLISHED_PAGE})"
        return Fault(group, rule, fix=f"Try {OTHER_CHOICES.get(f'model={name}', 'preset=NAME')}.")
    if ours := OTHER_CHOICES.get(f"{group}={name}"):
        return Fault(group, rule, fix=f"Try {ours}.")
    path = Path(name)
    if group == "data" and (path.suffix or "/" in name or path.is_dir()):
        return Fault(
            group, rule, fix=f"Try data={corpus_of(path.name)} data.path={for_shell(name)}."
        )
    others = [
        f"{key}={name}" for key, other in GROUPS.items() if name in other or name in other.aliases
    ]
    if others and group != "study" and not nearest(name, names):
        return Fault(group, rule, fix=f"Try {alternatives(others)}.")
    if registry is not None:
        return unknown_component(group, name)
    fault = Fault(group, f"no choice is called '{name}'", fix=_similar(name, names))
    own = f"One of your own is in --config-dir DIR, or {group}=FILE.yaml."
    is_file = group in ("experiment", "preset", "study") and not nearest(name, names)
    return fault.with_fix(own) if is_file else fault


def unknown_component(group: str, name: str) -> Fault:
    """Returns the fault of an unknown component of a group."""
    own_file = OWN_FILE.format(group) if group != "logger" else ""
    return GROUPS[group].unknown(name, own_file).at(group)


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
