"""The corpus of a data set of the library `datasets`, from the hub or from this machine."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from xformer_kit.data.corpus.base import CORPORA, missing_package
from xformer_kit.data.corpus.records import ENTRIES_PER_BATCH, Entry, Records
from xformer_kit.registry import Fault, suggestion
from xformer_kit.registry.messages import one_line
from xformer_kit.text.user_path import user_path

# Names of known data sets -> the options of data=hub that read them.
DATA_SETS = {
    "c4": "allenai/c4 data.subset=en data.text=text data.valid_split=validation",
    "fineweb": "HuggingFaceFW/fineweb data.subset=sample-10BT data.text=text data.valid=0.001",
    "fineweb_edu": (
        "HuggingFaceFW/fineweb-edu data.subset=sample-10BT data.text=text data.valid=0.001"
    ),
    "openwebtext": "Skylion007/openwebtext data.text=text data.valid=0.001",
    "tinystories": "roneneldan/TinyStories data.text=text data.valid_split=validation",
    **dict.fromkeys(
        ("wikitext", "wikitext2"),
        "Salesforce/wikitext data.subset=wikitext-2-raw-v1 data.text=text"
        " data.valid_split=validation",
    ),
    "wikitext103": (
        "Salesforce/wikitext data.subset=wikitext-103-raw-v1 data.text=text"
        " data.valid_split=validation"
    ),
}
# Names of known text files -> where they are.
TEXT_FILES = {
    **dict.fromkeys(
        ("shakespeare", "tinyshakespeare", "tiny_shakespeare", "shakespeare_char"),
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    ),
    "enwik8": "https://mattmahoney.net/dc/enwik8.zip (unpack it)",
    "text8": "https://mattmahoney.net/dc/text8.zip (unpack it)",
}
CORPORA.refused_names |= {
    name: Fault(
        "",
        f"'{name}' is a data set of the hub, which the library datasets downloads",
        fix=f"Try data=hub data.dataset={words}.",
    )
    for name, words in DATA_SETS.items()
}
CORPORA.refused_names |= {
    name: Fault(
        "",
        f"'{name}' is a text file, which no command here downloads",
        fix=f"Get {place}, and give it as data=text data.path=FILE.",
    )
    for name, place in TEXT_FILES.items()
}


@CORPORA.register("hub", also_called=("datasets", "huggingface", "hf"))
@dataclass(kw_only=True, eq=False)
class Hub(Records):
    """A data set of the library `datasets`, from the hub or from this machine (the extra `hub`).

    It has a name on the hub, or is a directory that `save_to_disk` wrote, or a directory of data
    files. No code of a data set is run. The splits are those of the data set, or fractions of its
    training split.
    """

    split_options = {"train": ("train_split",), "valid": ("valid_split",), "test": ("test_split",)}

    dataset: str  # a name on the hub such as roneneldan/TinyStories, or a directory
    subset: str | None = None  # configuration of the data set, such as de-en
    source: str = "source"  # field of the source of a pair
    # field of a second source, which ` ||| ` joins to the first; null: none
    second: str | None = None
    target: str = "target"  # field of its target
    text: str | None = None  # field of a text, in place of a pair
    train_split: str = "train"  # its split for training
    valid_split: str | None = None  # its split for validation
    test_split: str | None = None  # its split for the test
    valid: float | None = None  # share for validation; null is 0.05, or valid_split
    test: float = 0.0  # share for the test

    @classmethod
    def check(cls, options, context):
        yield from missing_package(cls, "datasets", "hub")
        yield from super().check(options, context)
        splits = [options.train_split, options.valid_split, options.test_split]
        names = [name for name in splits if name is not None]
        if len(set(names)) < len(names):
            yield Fault(
                "valid_split",
                "must be other examples than the other splits",
                ", ".join(names),
                f"Use {context.path}.valid=0.05.",
            )

    def stamp(self) -> list[Any]:
        return [*super().stamp(), [split._fingerprint for split in self._splits.values()]]

    def size(self) -> int:
        return sum(split.data.nbytes for split in self._splits.values())

    def entries(self, split: str) -> Iterator[Entry]:
        data = self._splits[split]
        data = data.select_columns(self.columns(data.column_names))
        entries = (
            dict(zip(batch, row, strict=True))
            for batch in data.iter(ENTRIES_PER_BATCH)
            for row in zip(*batch.values(), strict=True)
        )
        for number, entry in enumerate(entries, 1):
            yield entry, f"example {number:,} of '{self.dataset}'"

    @cached_property
    def _splits(self) -> dict[str, Any]:
        """Given split -> the library's Dataset."""
        loaded, splits = self._load(), {}
        for split in ("train", *self.given_splits):
            (option,) = self.split_options[split]
            if (name := getattr(self, option)) not in loaded:
                raise self.config_error(
                    option,
                    f"the data set '{self.dataset}' has no split '{name}'",
                    fix=suggestion(name, loaded, "It has"),
                )
            splits[split] = loaded[name]
        return splits

    def _load(self) -> Mapping[str, Any]:
        """Returns name of a split -> the library's Dataset. Raises ConfigError with the library's
        reason.
        """
        import datasets

        folder = user_path(self.dataset)
        try:
            if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
                loaded = datasets.load_from_disk(str(folder))
            else:
                name = str(folder) if folder.is_dir() else self.dataset
                loaded = datasets.load_dataset(name, self.subset)
        except Exception as error:  # of the library, the network or the file system
            raise self.config_error(
                "dataset",
                "cannot be loaded",
                f"'{self.dataset}' ({one_line(error, 300)})",
                "Name another, or a directory.",
            ) from None
        return loaded if isinstance(loaded, Mapping) else {"train": loaded}
