"""Rare placements."""
