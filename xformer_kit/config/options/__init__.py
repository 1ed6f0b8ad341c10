"""What a config has: its groups, settings, callbacks, loggers and options of the trainer."""
