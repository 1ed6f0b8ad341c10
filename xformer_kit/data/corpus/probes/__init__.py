"""Probes: made-up tasks in which architectures differ, with exact answers."""

from xformer_kit.data.corpus.probes import copying, formal, lookup
from xformer_kit.data.corpus.probes.base import Probe, ProbeExamples

__all__ = ["Probe", "ProbeExamples"]
