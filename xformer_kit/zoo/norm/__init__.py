"""Rare norms."""
