"""The reference as a static site, built from the registries, docstrings and configs: `make docs`,
then open site/index.html.

Pages are written as Markdown whose blocks are HTML (`docs/write.py`), Sphinx turns them into site/,
and every link and anchor of the result is followed (`docs/links.py`). Nothing is fetched, neither
in building nor in reading.
"""
