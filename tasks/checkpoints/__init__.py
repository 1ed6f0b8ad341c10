"""Checkpoint files of a run."""
