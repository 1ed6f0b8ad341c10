"""Renders the document of a report with a jinja2 template of this folder."""

from collections.abc import Callable, Mapping
from pathlib import Path

from xformer_kit.study.report.document import Document


def render(
    template: str, document: Document, filters: Mapping[str, Callable], **variables: object
) -> str:
    """The text of a template, in which HTML is escaped if the template is one of HTML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=template.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(template).render(document=document, **variables)
