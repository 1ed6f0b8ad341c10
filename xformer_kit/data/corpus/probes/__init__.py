"""Probes: synthetic tasks with exact answers, in which architectures differ."""

from xformer_kit.data.corpus.probes import copying, formal, lookup
from xformer_kit.data.corpus.probes.base import Probe, ProbeExamples

__all__ = ["Probe", "ProbeExamples"]
