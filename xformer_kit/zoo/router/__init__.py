"""Rare routers."""
