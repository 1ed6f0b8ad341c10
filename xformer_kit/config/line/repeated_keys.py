"""Check for repeated keys in a mapping of an override: Hydra's parser would keep the last one."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from antlr4 import CommonTokenStream, InputStream  # the runtime of Hydra's grammar
from hydra.grammar.gen.OverrideLexer import OverrideLexer
from hydra.grammar.gen.OverrideParser import OverrideParser

from xformer_kit.registry import Fault


def repeated_key(word: str) -> Fault | None:
    """Returns the fault of the first key that a mapping of a word has more than once; None if there
    is none, or Hydra's grammar does not match the word.
    """
    if "{" not in word:
        return None
    lexer = OverrideLexer(InputStream(word))
    parser = OverrideParser(CommonTokenStream(lexer))
    for recognizer in (lexer, parser):
        recognizer.removeErrorListeners()  # they print
    for mapping in _mappings(parser.override()):
        keys = Counter(pair.dictKey().getText().strip() for pair in mapping.dictKeyValuePair())
        if repeated := [key for key, count in keys.items() if count > 1]:
            path, rule = word.lstrip("+~").partition("=")[0], "is given more than once"
            return Fault(path, f"the key {repeated[0]} {rule}", word, "Keep one of them.")
    return None


def _mappings(tree: Any) -> Iterator[Any]:
    if isinstance(tree, OverrideParser.DictContainerContext):
        yield tree
    for child in getattr(tree, "children", None) or ():
        yield from _mappings(child)
