"""Types of a config in Python, for editors and type checkers: `Config`."""

from xformer_kit.typed.run import Config

__all__ = ["Config"]
