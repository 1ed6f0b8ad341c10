"""Faults as the messages that a user reads."""

from collections.abc import Iterable

from xformer_kit.registry import Fault


def messages(faults: Iterable[Fault]) -> list[str]:
    return [str(fault) for fault in faults]
