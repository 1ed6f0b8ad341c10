"""Rare feed-forward networks."""
