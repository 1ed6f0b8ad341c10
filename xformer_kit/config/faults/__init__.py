"""Checks of a composed config: its components, stacks, data, task, and the machine."""
