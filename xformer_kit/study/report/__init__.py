"""A study's results in words, tables and pictures: HTML, Markdown and CSV, all from one
structure.
"""
