"""Stop criteria: an id, or stop texts."""

from typing import Any

import torch
from torch import Tensor

from xformer_kit.generate.options import Decoding
from xformer_kit.registry import config_error


class StopCriteria:
    """Which rows have ended: with the id `end`, or with a text of `stop`. Called with the new
    tokens (b,) of all rows, it returns them with `end` in rows that ended before.

    Raises ConfigError for stop texts without a tokenizer, and for several rows that end at
    different times and have no id to be filled with.
    """

    def __init__(self, decoding: Decoding, rows: int, device: torch.device, tokenizer: Any = None):
        if decoding.stops and tokenizer is None:
            raise config_error(
                "stop",
                "texts need model.tokenizer, and the model has none",
                fix="Load the model from a run, or give end.",
            )
        if decoding.stops and decoding.end is None and rows > 1:
            raise config_error(
                "stop",
                f"{rows} rows stop at different times",
                fix="Give end, the id to fill them with.",
            )
        self.end = decoding.end
        self.done = torch.zeros(rows, dtype=torch.bool, device=device)
        self.matchers = [
            StopTextMatcher(decoding.stops, tokenizer) for _ in range(rows) if decoding.stops
        ]

    def __call__(self, new: Tensor) -> Tensor:
        if self.end is not None:
            new = new.masked_fill(self.done, self.end)
            self.done = self.done | (new == self.end)
        if self.matchers:
            stopped = [match(i) for match, i in zip(self.matchers, new.tolist(), strict=True)]
            self.done = self.done | torch.tensor(stopped, device=self.done.device)
        return new

    def all(self) -> bool:
        """Whether every row has ended."""
        return bool(self.done.all())


class StopTextMatcher:
    """Searches the text of one row for stop texts; keeps only characters in which one may begin."""

    def __init__(self, stops: tuple[str, ...], tokenizer: Any):
        self.stops = stops
        self.decode = tokenizer.stream()
        self.text = ""
        self.keep = max(map(len, stops)) - 1  # characters

    def __call__(self, new: int) -> bool:
        """Appends an id; returns whether a stop text is complete."""
        text = self.text + self.decode(new)
        self.text = text[max(0, len(text) - self.keep) :]
        return any(stop in text for stop in self.stops)
