"""Data sets of the library `datasets`, from the hub or from this machine, as corpora."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from xformer_kit.data.corpus.base import CORPORA
from xformer_kit.data.corpus.divided import share_faults
from xformer_kit.data.corpus.records import AT_ONCE, Entry, Records, absent, field_faults
from xformer_kit.registry import ConfigError, Fault, choices
from xformer_kit.registry.messages import one_line


@CORPORA.register("hub", also_called=("datasets", "huggingface", "hf"))
class Hub(Records):
    """A data set of the library `datasets`, from the hub or from this machine (the extra `hub`).

    It has a name on the hub, or is a directory that `save_to_disk` wrote, or a directory of data
    files. It is loaded whole; no code of a data set is run. The splits are the data set's own, or
    shares of its training split.
    """

    own = "data.{split}_split"

    def __init__(
        self,
        *,
        dataset: str,  # a name on the hub such as roneneldan/TinyStories, or a directory
        subset: str | None = None,  # configuration of the data set, such as de-en
        source: str = "source",  # field of the source of a pair
        target: str = "target",  # field of its target
        text: str | None = None,  # field of a text, in place of a pair
        train_split: str = "train",  # its split for training
        valid_split: str | None = None,  # its split for validation
        test_split: str | None = None,  # its split for the test
        valid: float | None = None,  # share for validation; null is 0.05, or valid_split
        test: float = 0.0,  # share for the test
    ):
        self.dataset = dataset
        self.subset = subset
        self.choose(source, target, text)
        names = {"train": train_split, "valid": valid_split, "test": test_split}
        options = {name: f"{split}_split" for split, name in names.items()}
        self.divide(
            {split: name and (name, options[name]) for split, name in names.items()}, valid, test
        )
        self._loaded: Mapping[str, Any] | None = None

    @classmethod
    def check(cls, options, context):
        yield from absent("hub", "datasets", "hub")
        yield from field_faults(options)
        yield from share_faults(options, "valid_split", "test_split")
        splits = (options.train_split, options.valid_split, options.test_split)
        names = [name for name in splits if name is not None]
        if len(set(names)) < len(names):
            yield Fault(
                "valid_split",
                "must be other examples than the other splits",
                got=", ".join(names),
                fix="Use data.valid=0.05.",
            )
        if not options.dataset:
            yield Fault("dataset", "must name a data set or a directory", got="''")

    def stamp(self) -> list[Any]:
        prints = {
            name: self._split_of(name, option)._fingerprint for name, option in self.given.values()
        }
        return [self.dataset, self.subset, self.fields, self.shares, prints]

    def size(self) -> int:
        return sum(self._split_of(*what).data.nbytes for what in self.given.values())

    def entries(self, what: tuple[str, str]) -> Iterator[Entry]:
        split = self._split_of(*what)
        split = split.select_columns(self.columns(split.column_names))
        number = 0
        for batch in split.iter(AT_ONCE):
            for values in zip(*batch.values(), strict=True):
                number += 1
                yield (
                    dict(zip(batch, values, strict=True)),
                    f"example {number:,} of '{self.dataset}'",
                )

    def _split_of(self, name: str, option: str) -> Any:
        if self._loaded is None:
            self._loaded = _load(self.dataset, self.subset)
        if name not in self._loaded:
            raise ConfigError(
                Fault(
                    f"data.{option}",
                    f"the data set '{self.dataset}' has no split '{name}'",
                    fix=choices(name, self._loaded, "It has"),
                )
            )
        return self._loaded[name]


def _load(dataset: str, subset: str | None) -> Mapping[str, Any]:
    """Split -> the library's Dataset. Raises ConfigError with the library's reason."""
    import datasets

    where = Path(dataset).expanduser()
    try:
        if any((where / name).is_file() for name in ("dataset_dict.json", "state.json")):
            found = datasets.load_from_disk(str(where))
        else:
            found = datasets.load_dataset(str(where) if where.is_dir() else dataset, subset)
    except Exception as error:  # of the library, the network or the file system
        raise ConfigError(
            Fault(
                "data.dataset",
                "cannot be loaded",
                got=f"'{dataset}' ({one_line(error, 300)})",
                fix="Name another, or a directory.",
            )
        ) from None
    return found if isinstance(found, Mapping) else {"train": found}
