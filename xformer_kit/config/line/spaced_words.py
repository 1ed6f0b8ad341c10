"""Overrides with spaces around their =, which a shell passes as several words."""

import re
from collections.abc import Iterable

from xformer_kit.registry import Fault
from xformer_kit.text.command_lines import for_shell

KEY = re.compile(r"[+~]*[A-Za-z_][\w./@]*")


def joined_words(words: Iterable[str]) -> tuple[list[str], list[Fault]]:
    """Returns (words, faults): the three words of `trainer.max_steps = 20` are joined to one, also
    the two of `trainer.max_steps= 20` and `trainer.max_steps =20`, and are a fault.
    """
    rest, joined, faults = list(words), list[str](), list[Fault]()
    while rest:
        count = _count(rest)
        word = "".join(rest[:count])
        if count > 1:
            given = " ".join(rest[:count])
            fix = f"Write it without spaces: {for_shell(word)}."
            faults.append(Fault(given, "is more than one word", fix=fix))
        joined.append(word)
        del rest[:count]
    return joined, faults


def _count(words: list[str]) -> int:
    """Returns the number of first words that make one override."""
    key, *after = words
    second, third = [*after[:2], "", ""][:2]
    if KEY.fullmatch(key) and second == "=" and "=" not in third:
        return 3 if third else 1
    if KEY.fullmatch(key) and second.startswith("=") and len(second) > 1:
        return 2
    ends = key.endswith("=") and KEY.fullmatch(key[:-1])
    # `name= ~metrics.f1` is an empty text and a deletion.
    return 2 if ends and second and "=" not in second and not second.startswith("~") else 1
