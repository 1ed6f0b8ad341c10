"""Other decoders."""

from tests.hub.case import Case

CASES: dict[str, Case] = {}
