"""Text for models: corpora, tokenizers, and the order of examples."""

from xformer_kit.data.prepare import Prepared, prepare
from xformer_kit.data.windows import Windows, collate

__all__ = ["Prepared", "Windows", "collate", "prepare"]
