"""Check for repeated keys in a mapping of an override: Hydra's parser would keep the last one."""

from collections.abc import Iterator
from typing import Any

from antlr4 import CommonTokenStream, InputStream  # the runtime of Hydra's grammar
from hydra.grammar.gen.OverrideLexer import OverrideLexer
from hydra.grammar.gen.OverrideParser import OverrideParser

from xformer_kit.registry import Fault, Faults


def repeated_keys(word: str) -> Faults:
    """Yields a fault per repeated key; none for a word that Hydra's grammar does not match."""
    if "{" not in word:
        return
    lexer = OverrideLexer(InputStream(word))
    parser = OverrideParser(CommonTokenStream(lexer))
    for recognizer in (lexer, parser):
        recognizer.removeErrorListeners()  # they print
    key = word.lstrip("+~").partition("=")[0]
    for path in _repeated(parser.override(), key):
        yield Fault(path, "is given more than once", got=word, fix="Keep one of them.")


def _repeated(tree: Any, path: str) -> Iterator[str]:
    """Yields the config path of each key that a mapping in a syntax tree has more than once."""
    if isinstance(tree, OverrideParser.DictContainerContext):
        keys = [pair.dictKey().getText().strip() for pair in tree.dictKeyValuePair()]
        yield from (f"{path}.{key}" for key in dict.fromkeys(keys) if keys.count(key) > 1)
        for key, pair in zip(keys, tree.dictKeyValuePair(), strict=True):
            yield from _repeated(pair.element(), f"{path}.{key}")
    elif isinstance(tree, OverrideParser.ListContainerContext):
        for i, item in enumerate(tree.element()):
            yield from _repeated(item, f"{path}[{i}]")
    else:
        for child in getattr(tree, "children", None) or ():
            yield from _repeated(child, path)
