"""Text from elsewhere, made harmless: control characters that a terminal would obey, and cells that
a spreadsheet would compute.
"""

import re

# All but tab and line feed; and what reorders text, so that a command line reads otherwise than it
# is: Unicode, annex 9.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
FORMULA = ("=", "+", "-", "@", "\t", "\n")  # first characters of a formula: OWASP, CSV Injection


def printable(text: str) -> str:
    """The text with the replacement sign in place of control characters, such as the one that
    begins an escape sequence.
    """
    return CONTROL.sub("\ufffd", text)


def cell(value: object) -> object:
    """A value as a cell of a csv file: text that begins as a formula does, and is no number, gets
    an apostrophe in front. Every line end is one line feed: a carriage return need not be quoted,
    and begins a row for some readers.
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(FORMULA) and not _is_number(text) else text


def text_of(cell: str) -> str:
    """The text of a cell that `cell` wrote."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
