"""Rare optimizers."""
