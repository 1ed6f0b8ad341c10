"""Checks of a user's corpora and tokenizers before they are used: what their methods return, and
what they raise. Those of this package are not checked.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from xformer_kit.data.corpus import Corpus
from xformer_kit.data.corpus.base import PairCorpus
from xformer_kit.data.tokenizer import Tokenizer
from xformer_kit.files.user_errors import is_users
from xformer_kit.registry import config_error
from xformer_kit.registry.messages import one_line

Problem = tuple[str, str]  # (rule, what was returned instead)
TOKENIZER_METHODS = ("encode", "pieces")
SAMPLE = 1000  # characters that a tokenizer encodes for its check


def check_corpus(corpus: Corpus) -> None:
    """Raises ConfigError if the first item of a split of a user's corpus has another form."""
    if is_users(type(corpus)):
        _raise_first(corpus.config_path, type(corpus), _corpus_problems(corpus))


def check_tokenizer(tokenizer: Tokenizer, texts: Iterator[str]) -> None:
    """Raises ConfigError if the methods of a user's tokenizer return wrong values for the beginning
    of a text.
    """
    if is_users(type(tokenizer)):
        text = next(texts, "")[:SAMPLE]
        _raise_first("tokenizer", type(tokenizer), _tokenizer_problems(tokenizer, text))


def _raise_first(path: str, component: type, problems: Iterator[Problem]) -> None:
    for rule, got in problems:
        fix = f"Change it in '{inspect.getfile(component)}'."
        raise config_error(path, f"{component.__name__} {rule}", got, fix)


def _corpus_problems(corpus: Corpus) -> Iterator[Problem]:
    method = {"text": "texts", "pairs": "pairs", "labelled": "dataset"}[corpus.form]
    base = PairCorpus if corpus.form == "pairs" else Corpus
    if getattr(type(corpus), method, None) is getattr(base, method, None):
        yield f"must define {method}(split), which has the examples", ""
    for split in corpus.splits:
        call = f"{method}('{split}')"
        if corpus.form == "labelled":
            dataset: Any = getattr(corpus, method)(split)
            yield from _labelled_problems(call, dataset[0])
            continue
        item = next(iter(corpus.items(split)), None)
        if item is not None and not _has_form(item, corpus.form):
            form = "a str" if corpus.form == "text" else "(source, target), two str,"
            yield f"must yield {form} from {call}", _short(item)


def _has_form(item: Any, form: str) -> bool:
    if form == "text":
        return isinstance(item, str)
    return isinstance(item, tuple) and [*map(type, item)] == [str, str]


def _labelled_problems(call: str, example: Any) -> Iterator[Problem]:
    """Yields the problem of an example: {"tokens": (t,) int, "labels": (t,) int, -1 for none}."""
    arrays = [example]
    if isinstance(example, Mapping):
        arrays = [example.get("tokens"), example.get("labels")]
    if not (len(arrays) == 2 and all(map(_is_ids, arrays)) and len(arrays[0]) == len(arrays[1])):
        rule = f"must have two arrays (t,) of integers, tokens and labels, in {call}[0]"
        yield rule, " and ".join(map(_short, arrays))


def _tokenizer_problems(tokenizer: Tokenizer, text: str) -> Iterator[Problem]:
    kind = type(tokenizer)
    for method in TOKENIZER_METHODS:
        if getattr(kind, method) is getattr(Tokenizer, method):
            yield f"must define the method {method}", ""
    size = getattr(tokenizer, "vocab_size", None)
    if not isinstance(size, int) or size < 1:
        yield "must set vocab_size, the number of tokens", repr(size)
    ids = tokenizer.encode(text)
    if not _is_ids(ids):
        yield "must return an array (n,) of integers from encode", _short(ids)
    elif len(ids) and not 0 <= ids.min() <= ids.max() < tokenizer.vocab_size:
        rule = "must return ids from 0 to vocab_size - 1 from encode"
        yield rule, f"{ids.min()} to {ids.max()}, and {size}"
    pieces = tokenizer.pieces()
    if len(pieces) != size or not all(isinstance(piece, bytes) for piece in pieces):
        rule = f"must return bytes for each of the {size} tokens from pieces"
        yield rule, f"{len(pieces)}, {_short(next(iter(pieces), None))} first"
    try:
        again = kind.restore(json.loads(json.dumps(tokenizer.state())))
    except Exception as error:
        got = f"{type(error).__name__}: {one_line(error, 120)}"
        yield "must be rebuilt by restore from what state returns, plain values", got
        return
    if again.encode(text).tolist() != ids.tolist():
        yield "must encode the same after restore(state)", "other ids"


def _is_ids(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu"


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    return f"{type(value).__name__} {repr(value)[:40]}"
