"""Where is a paper? The only addresses that a report knows."""

import re

ARXIV = re.compile(r"arxiv:\s*(\d{4}\.\d{4,5}|[a-z-]+/\d{7})", re.IGNORECASE)
WEB = re.compile(r"https?://[^\s<>\"']+")


def address(paper: str) -> str | None:
    """Of "Xiong et al., 2020, arXiv:2002.04745" the page at arXiv; an address that it gives
    itself.
    """
    if found := ARXIV.search(paper):
        return f"https://arxiv.org/abs/{found[1]}"
    return found[0].rstrip(".,;)") if (found := WEB.search(paper)) else None
