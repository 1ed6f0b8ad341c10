"""Examples of a corpus of pairs: the ids of a source and of its target, read from memory maps."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from xformer_kit.data.batch import Example
from xformer_kit.data.cache import MemoryMapped, append_file, memory_map
from xformer_kit.data.tokenizer import Tokenizer
from xformer_kit.data.tokenizer.encoding import Encoding
from xformer_kit.data.tokenizer.texts import batches
from xformer_kit.registry import config_error

SIDES = ("source", "target")
PAIRS_PER_BATCH = 1024  # pairs that are tokenized at once
# special tokens that a model reads on each side: `text </s>`, and `<s> text` of a target
NUM_SPECIAL = 1


@dataclass(eq=False)
class Ragged(MemoryMapped):
    """Sequences of ids of different lengths, concatenated in `<path>.bin`; `<path>.offsets` holds
    where each begins, int64, and `<path>.sizes` the bytes of text of each token, uint32.
    """

    path: Path
    dtype: str
    count: int
    tokens: int
    bytes: int  # of the texts, in utf-8

    @cached_property
    def ids(self) -> np.ndarray:
        """All ids, memory-mapped."""
        return memory_map(Path(f"{self.path}.bin"), self.dtype, self.tokens)

    @cached_property
    def offsets(self) -> np.ndarray:
        """(count + 1,): where each sequence begins, and the end."""
        return memory_map(Path(f"{self.path}.offsets"), "<i8", self.count + 1)

    @cached_property
    def sizes(self) -> np.ndarray:
        """The bytes of text of each token, memory-mapped."""
        return memory_map(Path(f"{self.path}.sizes"), "<u4", self.tokens)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each sequence, (count,) int32."""
        return np.diff(self.offsets).astype(np.int32)


def write_pairs(
    folder: Path, split: str, source: Tokenizer, target: Tokenizer, pairs: Iterable[tuple[str, str]]
) -> dict[str, Any]:
    """Writes the ids of a split's pairs, without pairs that have an empty side.

    Returns {"source": the arguments of Ragged, "target": the same, "empty": number of pairs that
    are left out, "dropped": characters that are dropped, "unknown": side -> number of tokens for
    unknown text}.
    """
    empty = 0
    with ExitStack() as stack:
        writers = [
            _Writer(stack, folder / f"{split}.{side}", tokenizer)
            for side, tokenizer in zip(SIDES, (source, target), strict=True)
        ]
        for batch in batches(pairs, PAIRS_PER_BATCH):
            full = [pair for pair in batch if all(map(str.strip, pair))]
            texts = zip(writers, zip(*full, strict=True), strict=False)
            sides = [writer.tokenizer.encode_each(side) for writer, side in texts]
            # a text may have no tokens
            kept = [
                pair for pair in zip(*sides, strict=True) if all(len(side.ids) for side in pair)
            ]
            empty += len(batch) - len(kept)
            for writer, encodings in zip(writers, zip(*kept, strict=True), strict=False):
                writer.add(encodings)
    by_side = dict(zip(SIDES, writers, strict=True))
    return {
        **{side: writer.written for side, writer in by_side.items()},
        "empty": empty,
        "dropped": sum(writer.dropped for writer in writers),
        "unknown": {side: writer.unknown for side, writer in by_side.items()},
    }


class _Writer:
    """Appends texts to the files of a Ragged."""

    def __init__(self, stack: ExitStack, path: Path, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.written: dict[str, Any] = {"dtype": tokenizer.dtype.str}
        self.written |= {"count": 0, "tokens": 0, "bytes": 0}
        self.dropped = self.unknown = 0
        self.append_ids, self.append_offsets, self.append_sizes = (
            stack.enter_context(append_file(Path(f"{path}{end}")))
            for end in (".bin", ".offsets", ".sizes")
        )
        self.append_offsets(np.zeros(1, dtype="<i8"))

    def add(self, encodings: Sequence[Encoding]) -> None:
        """Appends texts, at least one."""
        ids, sizes, counts, dropped = zip(*encodings, strict=True)
        ends = self.written["tokens"] + np.cumsum([len(sequence) for sequence in ids], dtype="<i8")
        all_ids = np.concatenate(ids)
        self.append_ids(all_ids.astype(self.written["dtype"], copy=False))
        self.append_offsets(ends)
        self.append_sizes(np.concatenate(sizes).astype("<u4"))
        self.written["count"] += len(ids)
        self.written["tokens"] = int(ends[-1])
        self.written["bytes"] += sum(counts)
        self.dropped += sum(dropped)
        self.unknown += self.tokenizer.count_unknown(all_ids)


@dataclass(eq=False)
class Pairs:
    """Example i is {"source": ids, "target": ids}, int64, without special tokens.

    lengths      (n, 2) int32: tokens of source and target, special tokens included
    seq_len      maximum length of a side or, with `one_stream`, of both sides in one sequence
    too_long     for longer pairs: "drop"; "truncate", the end is cut off; "error"
    dropped      reason -> number of pairs that are left out ("empty", "too_long") or cut
                 ("truncated")

    Raises ConfigError if no pair is left, and with "error" for the first pair that is too long.
    """

    sides: Sequence[Ragged]  # source, target
    split: str
    seq_len: int
    too_long: str
    one_stream: bool
    empty: int = 0  # pairs that were left out when the files were written
    config_path: str = "data"  # config path of the corpus

    def __post_init__(self) -> None:
        lengths = np.stack([side.lengths for side in self.sides], axis=1) + NUM_SPECIAL
        sizes = lengths.sum(1) if self.one_stream else lengths.max(1, initial=0)
        long = sizes > self.seq_len
        count = int(long.sum())
        self.kept: np.ndarray | None = None  # indices of the pairs that are kept; None: all
        if count and self.too_long == "error":
            raise config_error(
                "data.seq_len",
                "must hold every pair, special tokens included",
                got=f"{self.seq_len}, and pair {int(long.argmax()) + 1:,} of {self.split} has"
                f" {sizes[long][0]:,} tokens; {count:,} are longer",
                fix=f"Try {sizes.max():,}, or data.too_long=drop or truncate.",
            )
        if count and self.too_long == "drop":
            self.kept = np.flatnonzero(~long)
            lengths = lengths[self.kept]
        # (n, 2) int32: source, target
        self.lengths = lengths = _fit_lengths(lengths, self.seq_len, self.one_stream)
        if not len(long):
            raise config_error(
                self.config_path,
                f"the split {self.split} must hold a pair",
                "none",
                "Give more pairs, or a larger share of them; equal sources go to the same split.",
            )
        if not len(lengths) or (lengths <= NUM_SPECIAL).any():
            raise config_error(
                "data.seq_len",
                "must hold a pair, special tokens included",
                f"{self.seq_len}, and {count:,} pairs of {self.split} are longer",
                "Raise it.",
            )
        reason = "too_long" if self.too_long == "drop" else "truncated"
        self._uncut = not count
        self.dropped = {k: n for k, n in (("empty", self.empty), (reason, count)) if n}

    @cached_property
    def bytes_per_token(self) -> float:
        """UTF-8 bytes of the targets per predicted token: bits per byte = nats per token / ln 2 /
        bytes_per_token.
        """
        if self._uncut:
            return self.sides[1].bytes / self.predicted
        return sum(self._part(1, i, "sizes").sum() for i in range(len(self))) / self.predicted

    @property
    def predicted(self) -> int:
        """Number of predicted tokens: those of the targets, with their end tokens."""
        return int(self.lengths[:, 1].sum(dtype=np.int64))

    def _part(self, side: int, i: int, field: str = "ids") -> np.ndarray:
        """Returns the ids, or the sizes, of one side of example i, cut to its length."""
        start = self.sides[side].offsets[i if self.kept is None else self.kept[i]]
        values = getattr(self.sides[side], field)
        return values[start : start + self.lengths[i, side] - NUM_SPECIAL]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> Example:
        i = range(len(self))[i]  # IndexError beyond the end; negative from the end
        return {name: self._part(side, i).astype(np.int64) for side, name in enumerate(SIDES)}


def _fit_lengths(lengths: np.ndarray, seq_len: int, one_stream: bool) -> np.ndarray:
    """Returns lengths cut to seq_len per side or, with `one_stream`, to seq_len for both sides
    together, of which a target keeps at least half if it is that long.
    """
    if not one_stream:
        return np.minimum(lengths, seq_len)
    source, target = lengths.T
    target = np.minimum(target, np.maximum(seq_len // 2, seq_len - source))
    return np.stack([np.minimum(source, seq_len - target), target], axis=1)
