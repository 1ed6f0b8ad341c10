"""Rare components of every kind: one file each, xformer_kit/zoo/<group>/<name>.py.

A registry lists the names of its folder and imports a file when its component is needed. Nothing
imports this package at the top of a module. A file imports kinds, the registry, model.tokens and
kernel, and no other component of the zoo; what two of them share is in a file with a leading
underscore.
"""
