"""Decoders that are near to Llama."""

from tests.hub.case import Case

CASES: dict[str, Case] = {}
