"""Page of the Python interface: the guide, and the public functions with their docstrings."""

import inspect
import re
from pathlib import Path
from typing import Any

from docs import markup
from docs.typeset import code, typeset
from docs.written_pages import ROOT, linked

QUALIFIED = re.compile(r"'|\b(?:[a-z_]+\.)+(?=[A-Z])")  # quotes and modules in a signature


def python_page(copied: set[Path]) -> str:
    """Returns the Markdown of the page; adds the files that it links to to `copied`."""
    source = "docs/python.md"
    guide = linked((ROOT / source).read_text(encoding="utf-8"), source, "python", copied)
    return "\n\n".join(
        (guide.rstrip(), *(_entry(name, member) for name, member in public().items()))
    )


def public() -> dict[str, Any]:
    """Returns {name: function, class or method} of the interface."""
    from xformer_kit import ConfigError, WithLoss, build, compose, inspect, load
    from xformer_kit.generate import generate
    from xformer_kit.model.model import Model

    functions = {f"xformer_kit.{f.__name__}": f for f in (compose, build, load)}
    methods = {f"Model.{name}": getattr(Model, name) for name in ("forward", "generate", "hidden")}
    pictures = {f"xformer_kit.inspect.{name}": getattr(inspect, name) for name in inspect.__all__}
    methods["xformer_kit.generate.generate"] = generate
    classes = {f"xformer_kit.{one.__name__}": one for one in (ConfigError, WithLoss)}
    return functions | methods | classes | pictures


def _entry(name: str, member: Any) -> str:
    """Returns a heading, the signature, and the paragraphs of the docstring."""
    doc = inspect.getdoc(member) or ""
    paragraphs = [
        markup.paragraph(typeset(" ".join(part.split()), lambda _: None))
        for part in doc.split("\n\n")
    ]
    signature = f"{name.rpartition('.')[2]}{_signature(member)}"
    return "\n\n".join((f"### {name}", markup.block(f"<p>{code(signature)}</p>"), *paragraphs))


def _signature(member: Any) -> str:
    try:
        return QUALIFIED.sub("", str(inspect.signature(member)))
    except (TypeError, ValueError):
        return ""
