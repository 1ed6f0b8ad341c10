"""Sanitizing of untrusted text: control characters for terminals, and formulas for spreadsheets."""

import re

# Control characters except tab and line feed; and bidirectional formatting characters, which
# reorder the text of a command line on the screen: Unicode, annex 9.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
FORMULA = ("=", "+", "-", "@", "\t", "\n")  # first characters of a formula: OWASP, CSV Injection


def printable(text: str) -> str:
    """Returns the text with U+FFFD in place of control characters, such as the one that begins an
    escape sequence.
    """
    return CONTROL.sub("\ufffd", text)


def cell(value: object) -> object:
    """Returns a value as a cell of a csv file: text that begins like a formula and is no number
    gets an apostrophe in front. Every line end becomes a line feed: some readers begin a row at an
    unquoted carriage return.
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{text}" if text.startswith(FORMULA) and not is_number(text) else text


def text_of(cell: str) -> str:
    """Returns the text of a cell: the inverse of `cell`."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def is_number(text: str) -> bool:
    """Whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
