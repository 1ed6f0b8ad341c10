"""Saved configs: those in runs' directories, their text and their hash."""
