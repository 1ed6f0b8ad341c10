"""Rare extras."""
