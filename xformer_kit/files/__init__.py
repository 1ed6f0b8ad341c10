"""Files of a run's directory, which may be damaged, and Python files of a user's components."""
