"""Published models compared with the library transformers, at small sizes with random weights.

Only here the package imports transformers, in functions (`library.py`).
"""
