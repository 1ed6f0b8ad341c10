"""Printable text, paths that a user types, and command lines for messages."""
