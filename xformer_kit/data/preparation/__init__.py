"""From the texts of a corpus to the examples of a run: tokenizers, documents, windows, pairs."""
