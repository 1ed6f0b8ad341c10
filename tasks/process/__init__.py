"""The processes of a run: ranks, signals, exit codes and seeds."""
