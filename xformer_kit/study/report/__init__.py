"""The report of a study as HTML, Markdown and CSV, all rendered from one `Document`."""
