"""Rare scores."""
