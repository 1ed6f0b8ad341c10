"""The model: embedding, stacks of blocks, head, and what they compute with."""
