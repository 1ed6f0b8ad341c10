"""Sweeps over the choices of a group that match a pattern: -m 'experiment=glob(*)'."""

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override

from xformer_kit.config.hydra.hydra_session import HydraSession
from xformer_kit.config.options.groups import GROUPS
from xformer_kit.registry import Fault


def listed(session: HydraSession, override: Override) -> Override | Fault:
    """Returns glob(PATTERN) as the sweep over the choices that match, and any other override
    unchanged; the fault of a pattern that no choice matches, or of a key that is no group.

    A component is listed once, by its own name. As in Hydra, choices in folders are left out.
    """
    pattern, group = override.value(), override.key_or_group
    if not isinstance(pattern, Glob) or group.startswith("hydra"):
        return override
    if not session.is_group(group):
        rule = "is no group, and glob lists the choices of a group"
        return Fault(group, rule, got=override.input_line, fix=f"Try -m {group}=1,2.")
    own_names = sorted(GROUPS[group]) if group in GROUPS else session.choices(group)
    names = [name for name in own_names if "/" not in name]
    if not (chosen := pattern.filter(names)):
        known = f"Known: {', '.join(names)}."
        return Fault(group, "no choice matches the pattern", got=override.input_line, fix=known)
    line = f"{override.get_key_element()}=choice({','.join(chosen)})"
    return OverridesParser.create().parse_override(line)
