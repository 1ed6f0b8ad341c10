"""The command line: its words, and the checked configs of its runs."""
