"""Rare attentions."""
