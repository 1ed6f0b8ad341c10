"""Text for models: corpora, tokenizers, and the order of examples."""

from xformer_kit.data.batch import Batch, Example, collate
from xformer_kit.data.examples import Examples
from xformer_kit.data.preparation.prepare import Prepared, prepare
from xformer_kit.data.preparation.windows import Windows

__all__ = ["Batch", "Example", "Examples", "Prepared", "Windows", "collate", "prepare"]
