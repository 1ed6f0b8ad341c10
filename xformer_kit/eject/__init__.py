"""Ejected models: a composition as one file of plain PyTorch."""

from xformer_kit.eject.ejected import eject, merged
