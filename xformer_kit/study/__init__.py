"""Studies: from a question and a config to runs, statistics and a report."""
