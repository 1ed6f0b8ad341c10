"""Made-up tasks in which architectures differ: each asks for some tokens of an example, and an
exact answer exists.
"""

from xformer_kit.data.corpus.probes import copying, formal, lookup
from xformer_kit.data.corpus.probes.base import Labelled, Probe

__all__ = ["Labelled", "Probe"]
