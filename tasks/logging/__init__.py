"""What a run writes: csv files, summaries, loggers and the terminal."""
