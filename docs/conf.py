"""How Sphinx renders the pages that `python -m docs` writes."""

import importlib.metadata

project = "xformer_kit"
release = importlib.metadata.version("xformer_kit")
html_title = f"xformer_kit {release}"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
myst_disable_syntax = ["myst_line_comment"]  # a line may begin with %
nitpicky = True
smartquotes = False  # quotes of messages stay as they are printed

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_use_index = False
html_permalinks = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
