"""The model: embedding, stacks of blocks, head, loss, initial weights, adapters and shards."""
