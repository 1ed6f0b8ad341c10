"""The reference as a static site, built from the registries, docstrings and configs. Run `make
docs` and open site/index.html.

Pages are written as Markdown with blocks of HTML (`docs/write.py`) and rendered by Sphinx into
site/; then links and text are checked (`docs/broken_links.py`, `docs/lost_lines.py`). Neither
building nor reading the site needs a network.
"""
