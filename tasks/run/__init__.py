"""A run from its checked config to its end: start, resume, training, and what it starts from."""
