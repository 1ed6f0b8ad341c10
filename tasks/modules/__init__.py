"""The Lightning modules and the data module."""
