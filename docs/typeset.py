"""Renders a docstring as HTML: formulas with subscripts, exponents and Greek letters; links to
papers and components.

Docstrings contain formulas as typed text: sum_j gamma^(i - j) (q_i k_j / sqrt(head_dim)) v_j.
"""

import html
import re
from collections.abc import Callable

# Returns the address of a word such as attn=linear or a name in backticks, or None.
Find = Callable[[str], str | None]

GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "theta": "θ",
    "lambda": "λ",
    "mu": "μ",
    "pi": "π",
    "sigma": "σ",
    "tau": "τ",
    "phi": "φ",
    "psi": "ψ",
    "omega": "ω",
}
SIGNS = {
    "<=": "≤",
    ">=": "≥",
    "!=": "≠",
    "->": "→",
    "<-": "←",
    " * ": " · ",
    " - ": " − ",
    "...": "…",
    "sqrt(": "√(",
}
_greek, _signs = "|".join(GREEK), "|".join(re.escape(sign) for sign in SIGNS)
_word = rf"[A-Za-z]|{_greek}|norm|(?:sum|max|min|softmax|log)(?=_\w\b)"
_base = rf"(?P<base>(?<![\w.])(?:{_word})['~]?|[\])|])"
_inner = r"\{(?P<braced>[^{}]*)\}"
TOKEN = re.compile(
    "|".join(
        (
            r"(?P<ticks>`+)(?P<code>.+?)(?P=ticks)",
            r"(?P<url>https?://[^\s),;]*[^\s),;.]|openreview\.net/[^\s),;]*[^\s),;.])",
            r"arXiv:(?P<arxiv>\d{4}\.\d{4,5})",
            r"(?P<chosen>(?<![\w.])[a-z_]+(?:\.[a-z_]+)*=[\w.]+\w|(?<![\w.])[a-z_]+(?:\.[a-z_]+)*=\w)",
            rf"{_base}_(?:{_inner}|(?P<index>[A-Za-z0-9+]{{1,3}}(?![A-Za-z0-9_])))",
            r"\^(?:\{(?P<power>[^{}]*)\}|\((?P<exponent>(?:[^()]|\([^()]*\))*)\)|(?P<number>-?\d+(?:\.\d+)?|[A-Za-z]\d?\b))",
            rf"(?<![\w.])(?P<greek>{_greek})(?P<prime>['~]?)(?![\w=])",
            r"(?<!\w)(?P<tilde>[A-Za-z])~",
            rf"(?P<sign>{_signs})",
        )
    )
)


def typeset(text: str, find: Find) -> str:
    """Returns a paragraph as HTML."""
    found, end = [], 0
    for token in TOKEN.finditer(text):
        found += [html.escape(text[end : token.start()], quote=False), _render(token, find)]
        end = token.end()
    return "".join(found) + html.escape(text[end:], quote=False)


def paragraphs(text: str, find: Find, options: set[str]) -> list[str]:
    """Returns the paragraphs of a docstring as HTML. A line `option: meaning` starts a new line."""
    return [
        typeset(_joined(paragraph, options), find).replace("\n", "<br>")
        for paragraph in text.split("\n\n")
        if paragraph
    ]


def _joined(paragraph: str, options: set[str]) -> str:
    lines = [line.strip() for line in paragraph.splitlines()]
    starts = [re.match(r"`?(\w+)`?: ", line) for line in lines]
    breaks = ["\n" if start and start[1] in options else " " for start in starts]
    return "".join(gap + line for gap, line in zip(breaks, lines, strict=True)).strip()


def code(word: str, link: str | None = None) -> str:
    """Returns a word as inline code, with a link if there is one."""
    element = f'<code class="docutils literal">{html.escape(word, quote=False)}</code>'
    return f'<a href="{link}">{element}</a>' if link else element


def _render(token: re.Match[str], find: Find) -> str:
    found = token.groupdict()
    if found["code"] or found["chosen"]:
        word = found["code"] or found["chosen"]
        return code(word, find(word))
    if found["url"]:
        url = found["url"]
        return f'<a href="{url if "://" in url else "https://" + url}">{html.escape(url)}</a>'
    if found["arxiv"]:
        return f'<a href="https://arxiv.org/abs/{found["arxiv"]}">arXiv:{found["arxiv"]}</a>'
    if found["base"]:
        index = typeset(found["braced"] or found["index"] or "", find)
        return f"{_letter(found['base'])}<sub>{index}</sub>"
    if found["greek"]:
        return _letter(found["greek"] + found["prime"])
    if found["tilde"]:
        return _letter(found["tilde"] + "~")
    if found["sign"]:
        return SIGNS[found["sign"]]
    return (
        f"<sup>{typeset(found['power'] or found['exponent'] or found['number'] or '', find)}</sup>"
    )


def _letter(word: str) -> str:
    """Returns a letter of a formula, given by itself or by name, with its tilde or prime."""
    name, mark = (word[:-1], word[-1]) if word[-1] in "'~" else (word, "")
    return {"sum": "Σ"}.get(name, GREEK.get(name, name)) + {"~": "\u0303", "'": "′"}.get(mark, "")
