"""Laws of corpora."""

import hashlib
import multiprocessing
import pickle
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch.utils.data import DataLoader

from xformer_kit.data import Examples
from xformer_kit.data.corpus import Corpus
from xformer_kit.laws.kinds.options import node_faults, other_values
from xformer_kit.laws.kinds.registry import Component, law_of
from xformer_kit.laws.random_numbers import Draws
from xformer_kit.laws.tiny_composition import NotApplicable

FIRST = 200  # items of a split that are compared
SEEN = 5_000  # training examples among which validation examples are searched
_shared: dict[tuple[type, str], Corpus] = {}  # (class, overrides) -> the last corpus that was made
LOADED = 12  # examples that a loader process reads
MAX_BYTES = 2**22  # largest size of a corpus that is read completely for its fingerprint


@law_of("data", "again")
def again(component: Component) -> None:
    """The items of each split are the same a second time, and of a new corpus, in whatever state
    random generators are.

    Fails: items of 'train' are drawn from Python's `random`, which no run sets.
    Fix: Draw from a generator with a fixed seed that is created in the method, or from `draw`
        of a probe.
    """
    corpus, draws = shared(component), Draws()
    for split in corpus.splits:
        first, second, new = (
            draws.of(lambda: _items(one, split), seed)  # noqa: B023
            for seed, one in enumerate((corpus, corpus, component.create()))
        )
        for name in sorted(draws.names):
            raise component.broken(f"items of '{split}' are drawn from {name}, which no run sets")
        for other, what in ((second, "a second time"), (new, "of a new corpus")):
            if other != first:
                raise component.broken(f"the items of '{split}' are others {what}")


@law_of("data", "any order")
def any_order(component: Component) -> None:
    """Labelled examples are a function of their index: the same in any order of reading, with a
    length that does not change.

    Fails: example 3 of 'valid' depends on those read before.
    Fix: Compute an example from its index only, and keep no state between two reads.
    """
    for split, dataset in _datasets(component):
        length = len(dataset)
        count = min(FIRST, length)
        in_order = [_content(dataset[i]) for i in range(count)]
        backwards = [_content(dataset[i]) for i in reversed(range(count))][::-1]
        for index, (one, other) in enumerate(zip(in_order, backwards, strict=True)):
            if one != other:
                raise component.broken(f"example {index} of '{split}' depends on those read before")
        if len(dataset) != length:
            raise component.broken(f"'{split}' has {length} examples, and later {len(dataset)}")


@law_of("data", "loader processes")
def loader_processes(component: Component) -> None:
    """A corpus of labelled examples gives the same ones in a loader process; other corpora can be
    pickled, as for one.

    Fails: a pickled corpus has other items of 'train'.
    Fix: Keep only options in the fields of the class, and open files and connections in its
        methods.
    """
    corpus = shared(component)
    if corpus.form != "labelled":
        copy = pickle.loads(pickle.dumps(corpus))
        for split in corpus.splits:
            if _items(copy, split) != _items(corpus, split):
                raise component.broken(f"a pickled corpus has other items of '{split}'")
        return
    dataset = Examples(corpus.dataset(corpus.splits[-1]), None, seed=0)
    keys = list(range(min(LOADED, len(dataset))))
    loaded: DataLoader[Any] = DataLoader(
        dataset,  # type: ignore[arg-type]
        sampler=keys,
        batch_size=None,
        num_workers=1,
        multiprocessing_context=multiprocessing.get_context("forkserver"),
        collate_fn=_content,
    )
    for key, found in zip(keys, loaded, strict=True):
        if found != _content(dataset[key]):
            raise component.broken(f"example {key} is another one in a loader process")


@law_of("data", "fingerprint")
def fingerprint(component: Component) -> None:
    """The fingerprint and the stamp are the same for a new corpus, and differ if another value of
    an option, or another content of a file that an option names, gives other items.

    Fails: the fingerprint of a new corpus is another one.
    Fix: Return from `stamp` what the content depends on besides the options, such as the size
        and the time of a file, and nothing that changes between two runs.
    """
    corpus = shared(component)
    methods = ["stamp", "fingerprint"][: 1 + (corpus.size() <= MAX_BYTES)]
    new = component.create()
    for method in methods:
        if getattr(corpus, method)() != getattr(new, method)():
            raise component.broken(f"the {method} of a new corpus is another one")
    options = component.registry.options(component.node["name"])
    for option, value in component.node.items():
        for other_value in other_values(options[option].type, value) if option != "name" else ():
            changed = component.with_options(**{option: other_value})
            if node_faults("data", changed.node):
                continue
            other = changed.create()
            if all(_items(one, s) == _items(two, s) for one, two, s in _both(corpus, other)):
                continue
            for method in methods:
                if getattr(corpus, method)() == getattr(other, method)():
                    raise component.broken(
                        f"the {method} does not change with {option}={other_value}, and items do"
                    )

    for option, value in component.node.items():
        if isinstance(value, str) and Path(value).is_file() and option != "name":
            _check_content(component, option, Path(value), methods)


def _check_content(component: Component, option: str, file: Path, methods: list[str]) -> None:
    """Raises KindLawBroken if a method returns the same for two files of one name whose items
    differ.
    """
    with TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        corpora = []
        lines = file.read_bytes().splitlines(keepends=True)
        for content in (lines, lines[: len(lines) // 2]):
            copy.write_bytes(b"".join(content))
            corpus = component.with_options(**{option: str(copy)}).create()
            try:
                items = [_items(corpus, split) for split in corpus.splits]
            except Exception:  # of a format that half of the lines is not
                return
            corpora.append((items, [getattr(corpus, method)() for method in methods]))
    (items, ours), (other_items, others) = corpora
    for method, one, other in zip(methods, ours, others, strict=True):
        if items != other_items and one == other:
            raise component.broken(f"the {method} does not change with the content of {option}")


@law_of("data", "splits")
def splits(component: Component) -> None:
    """No pair or document of another split is a training one. Labelled examples, which may be drawn
    from few, are not compared.

    Fails: 3 items of 'valid' are training items.
    Fix: Choose the split of an item by a hash of its content, `hash_fraction(text)`, not by its
        place.
    """
    corpus = shared(component)
    if corpus.form == "labelled" or (corpus.form == "text" and not corpus.documents):
        raise NotApplicable("neither pairs nor documents")
    training = set(_items(corpus, "train", SEEN))
    for split in corpus.splits[1:]:
        if found := training.intersection(_items(corpus, split)):
            raise component.broken(f"{len(found)} items of '{split}' are training items")


def shared(component: Component) -> Any:
    """Returns a corpus that laws share, since some take long to read."""
    key = component.registry[component.node["name"]], str(component)
    if key not in _shared:
        _shared.clear()
        _shared[key] = component.create()
    return _shared[key]


def _items(corpus: Any, split: str, count: int = FIRST) -> list[Any]:
    """Returns the contents of the first items of a split."""
    if corpus.form == "labelled":
        dataset = corpus.dataset(split)
        return [_content(dataset[i]) for i in range(min(count, len(dataset)))]
    return [_content(item) for item in islice(corpus.items(split), count)]


def _content(item: Any) -> Any:
    """Returns a text or a pair, or a hash of the arrays of an example."""
    if not isinstance(item, dict):
        return item
    digest = hashlib.sha256()
    for name, values in sorted(item.items()):
        digest.update(f"{name} {values.dtype} {values.shape}".encode() + values.tobytes())
    return digest.hexdigest()


def _datasets(component: Component) -> Iterator[tuple[str, Any]]:
    """Yields (split, data set) of a corpus of labelled examples."""
    corpus = shared(component)
    if corpus.form != "labelled":
        raise NotApplicable("texts and pairs are read in order")
    for split in corpus.splits:
        yield split, corpus.dataset(split)


def _both(one: Corpus, other: Corpus) -> Iterator[tuple[Corpus, Corpus, str]]:
    """Yields both corpora with each split of both."""
    for split in one.splits:
        if split in other.splits:
            yield one, other, split
