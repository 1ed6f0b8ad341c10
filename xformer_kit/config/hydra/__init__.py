"""Hydra's session: config files and registered components, composed by Hydra."""
