"""What is one example of a corpus of pairs? The ids of a source and of its target, read from memory
maps.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.data.cache import append, reading, writing
from xformer_kit.data.tokenizer import Tokenizer
from xformer_kit.registry import ConfigError

SIDES = ("source", "target")
AT_ONCE = 1024  # pairs that are tokenized at once
# token that a model reads on each side beside the text's: `text </s>`, and `<s> text` of a target
SPECIAL = 1


class Ragged:
    """Sequences of ids, one after the other in `<path>.bin`; where each begins lies in
    `<path>.offsets`, int64.
    """

    def __init__(self, path: Path, dtype: str, count: int, tokens: int):
        self.path = path
        self.dtype = dtype
        self.count = count
        self.tokens = tokens
        # opened where they are read: in each loader worker
        self._maps: tuple[np.ndarray, np.ndarray] | None = None

    def maps(self) -> tuple[np.ndarray, np.ndarray]:
        """(all ids, (count + 1) offsets), read as they are touched."""
        if self._maps is None:
            parts = (".bin", self.dtype, self.tokens), (".offsets", "<i8", self.count + 1)
            self._maps = tuple(
                _mapped(Path(f"{self.path}{end}"), dtype, size) for end, dtype, size in parts
            )  # type: ignore[assignment]
        return self._maps  # type: ignore[return-value]

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each, (count,) int32."""
        return np.diff(self.maps()[1]).astype(np.int32)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> np.ndarray:
        ids, offsets = self.maps()
        return ids[offsets[i] : offsets[i + 1]]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {
            "_maps": None
        }  # a loader worker maps the files again, in place of a copy


def _mapped(file: Path, dtype: str, size: int) -> np.ndarray:
    if not size:  # there is no map of nothing
        return np.empty(0, dtype=dtype)
    with reading(file):  # a plain array: slicing a memmap costs three times as much
        return np.asarray(np.memmap(file, dtype=dtype, mode="r", shape=(size,)))


def write_pairs(
    folder: Path, split: str, source: Tokenizer, target: Tokenizer, pairs: Iterable[tuple[str, str]]
) -> dict[str, Any]:
    """Write the ids of a split's pairs and where each begins; pairs with an empty side are left out
    and counted.

    Returns {"source": what Ragged needs, "target": the same, "empty": count}.
    """
    empty, writers = (
        0,
        [
            _Writer(folder, f"{split}.{side}", t)
            for side, t in zip(SIDES, (source, target), strict=True)
        ],
    )
    with ExitStack() as stack:
        for writer in writers:
            stack.enter_context(writer)
        for some in _batches(pairs):
            full = [pair for pair in some if pair[0].strip() and pair[1].strip()]
            sides = [
                list(writer.tokenizer.encode_each([p[k] for p in full]))
                for k, writer in enumerate(writers)
            ]
            kept = [
                bool(len(s) and len(t)) for s, t in zip(*sides, strict=True)
            ]  # a tokenizer may know nothing of it
            empty += len(some) - sum(kept)
            for writer, ids in zip(writers, sides, strict=True):
                writer.add([one for one, keep in zip(ids, kept, strict=True) if keep])
    return {side: writer.said for side, writer in zip(SIDES, writers, strict=True)} | {
        "empty": empty
    }


class _Writer:
    """Appends sequences of ids to a Ragged's two files."""

    def __init__(self, folder: Path, name: str, tokenizer: Tokenizer):
        self.folder = folder
        self.path = folder / name
        self.tokenizer = tokenizer
        self.said: dict[str, Any] = {"dtype": tokenizer.dtype.str, "count": 0, "tokens": 0}

    def __enter__(self) -> None:
        with writing(self.folder.parent):
            names = [f"{self.path}{end}" for end in (".bin", ".offsets")]
            self.files = [open(name, "wb", buffering=0) for name in names]  # noqa: SIM115
        append(np.zeros(1, dtype="<i8"), self.files[1], self.folder.parent)

    def __exit__(self, *error: object) -> None:
        for file in self.files:
            file.close()

    def add(self, ids: list[np.ndarray]) -> None:
        if not ids:
            return
        ends = self.said["tokens"] + np.cumsum([len(one) for one in ids], dtype="<i8")
        append(
            np.concatenate(ids).astype(self.said["dtype"], copy=False),
            self.files[0],
            self.folder.parent,
        )
        append(ends, self.files[1], self.folder.parent)
        self.said |= {"count": self.said["count"] + len(ids), "tokens": int(ends[-1])}


def _batches(items: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    items = iter(items)
    while some := list(islice(items, AT_ONCE)):
        yield some


class Pairs:
    """Example i is {"source": ids, "target": ids}, int64, without special tokens; `lengths` counts
    one for each side.

    seq_len      the most tokens of a side, special tokens included; with `together`, of both sides
    in one stream
    too_long     what happens to others: "drop"; "truncate", the end is cut off; "error"
    dropped      reason -> number of pairs that are not there ("too_long") or not whole
    ("truncated")

    Raises ConfigError where nothing is left, and with "error" for the first pair that is too long.
    """

    def __init__(
        self,
        source: Ragged,
        target: Ragged,
        split: str,
        seq_len: int,
        too_long: str,
        tokenizer: Any,
        together: bool,
    ):
        self.sides = (source, target)
        self.split = split
        self.seq_len = seq_len
        self.tokenizer = tokenizer
        lengths = np.stack([side.lengths for side in self.sides], axis=1) + SPECIAL
        long = (lengths.sum(1) if together else lengths.max(1, initial=0)) > seq_len
        self.kept: np.ndarray | None = None  # indices of those that are there, where some are not
        if long.any() and too_long == "error":
            raise ConfigError(self._first(lengths, long, together))
        if long.any() and too_long == "drop":
            self.kept = np.flatnonzero(~long)
            lengths = lengths[self.kept]
        cut = too_long == "truncate" and bool(long.any())
        self.dropped = {"truncated" if cut else "too_long": int(long.sum())} if long.any() else {}
        self.lengths = (
            _fitted(lengths, seq_len, together) if cut else lengths
        )  # (n, 2) int32: source, target
        if not len(self.lengths) or (self.lengths <= SPECIAL).any():
            raise ConfigError(self._none(len(long), int(long.sum())))

    def _first(self, lengths: np.ndarray, long: np.ndarray, together: bool) -> str:
        i = int(long.argmax())
        what = "both sides" if together else f"the {SIDES[int(lengths[i].argmax())]}"
        most = lengths.sum(1).max() if together else lengths.max()
        got = lengths[i].sum() if together else lengths[i].max()
        start = self.tokenizer.decode(self.sides[1][i][:12].tolist())
        return (
            f"data.seq_len: must hold every pair, special tokens included; got {self.seq_len}, and"
            f" {what} of pair {i + 1:,} of {self.split} (target {start!r}...)"
            f" {'have' if together else 'has'} {got:,} tokens; {long.sum():,} are longer. Try"
            f" {most:,}, or data.too_long=drop or truncate."
        )

    def _none(self, pairs: int, long: int) -> str:
        if not pairs:
            return (
                f"data: the split {self.split} must hold a pair; got none. Give more pairs, or a"
                " larger share of them."
            )
        return (
            f"data.seq_len: must hold a pair, special tokens included; got {self.seq_len}, and"
            f" {long:,} of the {pairs:,} pairs of {self.split} are longer. Raise it."
        )

    @property
    def bytes_per_token(self) -> float:
        """UTF-8 bytes of the targets per token that is predicted: bits per byte = nats per token /
        ln 2 / it.
        """
        if not hasattr(self, "_bytes"):
            self._bytes = sum(self.tokenizer.count_bytes(ids) for ids in self._targets())
        return self._bytes / self.predicted

    @property
    def predicted(self) -> int:
        """Tokens of the targets that are predicted, their ends included."""
        return int(self.lengths[:, 1].sum(dtype=np.int64))

    def _targets(self) -> Iterator[np.ndarray]:
        if not self.dropped:
            yield self.sides[1].maps()[0]
        else:
            for i in range(len(self)):
                yield self._ids(1, i)

    def _ids(self, side: int, i: int) -> np.ndarray:
        at = i if self.kept is None else int(self.kept[i])
        return self.sides[side][at][: int(self.lengths[i, side]) - SPECIAL]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:
        i = range(len(self))[i]  # IndexError beyond the end; negative from the end
        return {name: self._ids(side, i).astype(np.int64) for side, name in enumerate(SIDES)}


def _fitted(lengths: np.ndarray, seq_len: int, together: bool) -> np.ndarray:
    """Lengths that fit: each side's, or of both together, where the shorter one keeps up to half of
    the room.
    """
    if not together:
        return np.minimum(lengths, seq_len)
    source, target = lengths.T
    target = np.minimum(target, np.maximum(seq_len // 2, seq_len - source))
    return np.stack([np.minimum(source, seq_len - target), target], axis=1)
