"""The command line: its words, and the configs of the runs that it asks for."""
