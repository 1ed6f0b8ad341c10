"""Rare masks."""
