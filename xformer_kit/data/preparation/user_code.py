"""Checks of a user's corpora and tokenizers before they are used: what their methods return, and
what they raise. Those of this package are not checked.
"""

import inspect
import json
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from xformer_kit.data.corpus import Corpus
from xformer_kit.data.tokenizer import Tokenizer
from xformer_kit.files.user_errors import is_users, lines_of_file
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.registry.messages import one_line

Problem = tuple[str, str]  # (rule, what was returned instead)
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
    """Raises the first problem, or what a method of the base class raises. What the user's lines
    raise is left to `user_errors`.
    """
    try:
        problem = next(problems, None)
    except ConfigError:
        raise
    except Exception as error:
        if lines_of_file(error, component):
            raise
        method = traceback.extract_tb(error.__traceback__)[-1].name
        got = f"{type(error).__name__} in {method} ({one_line(error, 120)})"
        problem = "must define the methods and the attributes that its base class needs", got
        if isinstance(error, NotImplementedError):
            problem = f"must define {method}", ""
    if problem:
        raise config_error(
            path,
            f"{component.__name__} {problem[0]}",
            problem[1],
            f"Change it in '{inspect.getfile(component)}'.",
        )


def _corpus_problems(corpus: Corpus) -> Iterator[Problem]:
    method = {"text": "texts", "pairs": "pairs", "labelled": "dataset"}[corpus.form]
    for split in corpus.splits:
        if corpus.form == "labelled":
            item = getattr(corpus, method)(split)[0]
            form = "{'tokens': array (t,) of integers, 'labels': the same}"
            fits = isinstance(item, Mapping) and _is_ids(item.get("tokens"), item.get("labels"))
        else:
            item = next(iter(corpus.items(split)), ("", "") if corpus.form == "pairs" else "")
            form = "a str" if corpus.form == "text" else "(source, target), two str"
            sides = (item,) if corpus.form == "text" else item
            fits = [*map(type, sides)] == [str] * (1 + (corpus.form == "pairs"))
        if not fits:
            yield f"must give {form}, from {method}('{split}')", repr(item)[:80]


def _tokenizer_problems(tokenizer: Tokenizer, text: str) -> Iterator[Problem]:
    size, ids, pieces = tokenizer.vocab_size, tokenizer.encode(text), tokenizer.pieces()
    if not _is_ids(ids) or (len(ids) and not 0 <= ids.min() <= ids.max() < size):
        yield (
            f"must return an array (n,) of ids from 0 to {size - 1} (vocab_size - 1) from encode",
            f"{ids.min()} to {ids.max()}" if _is_ids(ids) else " ".join(repr(ids).split())[:80],
        )
    if len(pieces) != size or not all(isinstance(piece, bytes) for piece in pieces):
        yield (
            f"must return bytes for each of the {size} tokens from pieces",
            f"{len(pieces)}, {repr(pieces[:1])[:40]} first",
        )
    again = type(tokenizer).restore(json.loads(json.dumps(tokenizer.state())))
    if again.encode(text).tolist() != ids.tolist():
        yield "must encode the same after restore(state)", "other ids"


def _is_ids(*arrays: Any) -> bool:
    """Whether all are arrays (n,) of integers, of one length."""
    are_arrays = all(isinstance(array, np.ndarray) for array in arrays)
    return are_arrays and {(a.ndim, a.dtype.kind in "iu", len(a)) for a in arrays} == {
        (1, True, len(arrays[0]))
    }
