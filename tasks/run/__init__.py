"""A run: start, resume, processes, checkpoints and exit codes."""
