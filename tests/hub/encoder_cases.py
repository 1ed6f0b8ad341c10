"""Encoders, and models of two stacks."""

from tests.hub.case import Case

CASES: dict[str, Case] = {}
