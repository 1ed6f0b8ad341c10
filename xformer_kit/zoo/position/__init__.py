"""Rare positions."""
