"""Writes the output of runs: csv files, summaries, loggers and the terminal."""
