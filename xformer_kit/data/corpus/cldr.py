"""Corpora of dates, and of names of countries and languages, from the CLDR data of the library
Babel.
"""

from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any, Literal

import numpy as np

from xformer_kit.data.corpus.base import (
    CORPORA,
    PairCorpus,
    TextPairs,
    hash_fraction,
    missing_package,
)
from xformer_kit.data.order import mix64
from xformer_kit.data.random_stream import RandomStream
from xformer_kit.registry import at_least, at_most, not_empty
from xformer_kit.registry.messages import in_open_range

Format = Literal["full", "long", "medium", "short"]


class _Babel(PairCorpus):
    """Base: pairs from the library Babel, which may differ between its versions."""

    splits = ("train", "valid", "test")

    @classmethod
    def check(cls, options, context):
        yield from missing_package(cls, "babel", "data")

    def stamp(self) -> list[Any]:
        import babel

        options = {name: value for name, value in vars(self).items() if name != "config_path"}
        return [CORPORA.name_of(type(self)), babel.__version__, options]


@CORPORA.register("dates", also_called=("babel_dates",))
class Dates(_Babel):
    """A date in words -> ISO 8601: `mardi 23 juin 1987` -> `1987-06-23`, in some 280 languages
    (Unicode CLDR, through Babel).

    A fraction of the languages is only in the test set; validation has the languages of training. A
    tenth of the days is only in validation and test. Of languages that write all dates in the same
    way, one is used. `short` has the year in two digits and the month as a number, in an order that
    differs by language, so that some dates are ambiguous; it is left out by default.
    """

    def __init__(
        self,
        *,
        # of CLDR: with the weekday, in words, abbreviated
        formats: tuple[Format, ...] = ("full", "long", "medium"),
        first: int = 1900,  # first year
        last: int = 2099,  # last year
        held_out: float = 0.1,  # fraction of the languages, for the test set
        pairs: int = 100_000,  # of the training set
        examples: int = 2000,  # of each of valid and test
        examples_seed: int = 0,  # of all pairs
    ):
        self.formats = tuple(formats)
        self.first = first
        self.last = last
        self.held_out = held_out
        self.count = pairs
        self.examples = examples
        self.examples_seed = examples_seed

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from at_least(options, first=1, last=options.first, pairs=1, examples=1)
        yield from at_most(options, last=9999)
        yield from not_empty(options, formats="Try [long].")
        yield from in_open_range(options, "Try 0.1.", held_out=(0, 1))

    def size(self) -> int:
        return 40 * (self.count + 2 * self.examples)

    def locales(self, split: str) -> list[str]:
        """Returns the languages of a split; valid has those of train."""
        return [
            name
            for name in _date_languages()
            if (hash_fraction(f"dates {name}") < self.held_out) == (split == "test")
        ]

    def pairs(self, split: str) -> TextPairs:
        from babel.dates import format_date

        days = np.arange(
            date(self.first, 1, 1).toordinal(), date(self.last, 12, 31).toordinal() + 1
        )
        held_out = mix64(days.astype(np.uint64)) % 10 == 0
        days = days[held_out != (split == "train")]
        locales, count = self.locales(split), self.count if split == "train" else self.examples
        # the first pairs do not depend on their number
        bounds = {"day": len(days), "locale": len(locales), "format": len(self.formats)}
        draws = [
            RandomStream("dates", self.examples_seed, split, name).integers(n, count).tolist()
            for name, n in bounds.items()
        ]
        for day, locale, date_format in zip(*draws, strict=True):
            day_date = date.fromordinal(int(days[day]))
            yield (
                format_date(day_date, self.formats[date_format], locale=_locale(locales[locale])),
                day_date.isoformat(),
            )


@CORPORA.register("names", also_called=("babel_names",))
@dataclass(kw_only=True, eq=False)
class Names(_Babel):
    """The name of a territory or a language in some language -> its English name: `Frankreich` ->
    `France`.

    Unicode CLDR, through Babel: some 90,000 different pairs of 250 languages.

    valid and test are a fixed fraction each, by the hash of the name, so that none of their names
    is in training.
    """

    # of what the names are
    kinds: tuple[Literal["territories", "languages"], ...] = ("territories", "languages")
    held_out: float = 0.05  # fraction of the names, for each of valid and test

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from not_empty(options, kinds="Try [territories].")
        yield from in_open_range(options, "Try 0.05.", held_out=(0, 0.5))

    def size(self) -> int:
        return 3_500_000

    def pairs(self, split: str) -> TextPairs:
        for name, english in _name_pairs(tuple(self.kinds)):
            at = hash_fraction(f"names {name}") / self.held_out
            if split == ("valid" if at < 1 else "test" if at < 2 else "train"):
                yield name, english


@cache
def _locale(name: str) -> Any:
    from babel import Locale

    return Locale.parse(name)


def _languages() -> list[str]:
    """Returns the locales of languages without a country or a script."""
    from babel import localedata

    return sorted(name for name in localedata.locale_identifiers() if "_" not in name)


@cache
def _date_languages() -> list[str]:
    """Returns the languages; of those that write all dates in the same way, only the first."""
    from babel.dates import format_date

    days = [date(1987, month, 23) for month in range(1, 13)]
    first: dict[tuple[str, ...], str] = {}  # the dates as written -> the first language
    # the root is the default of languages without own names
    for name in ["root", *_languages()]:
        dates = (
            format_date(day, form, locale=_locale(name))
            for form in ("full", "long", "medium")
            for day in days
        )
        first.setdefault(tuple(dates), name)
    return sorted(set(first.values()) - {"root"})


@cache
def _name_pairs(kinds: tuple[str, ...]) -> list[tuple[str, str]]:
    """Returns the sorted, different pairs of (name, English name)."""
    english, pairs = _locale("en"), set()
    for language in _languages():
        for kind in kinds if language != "en" else ():
            names, english_names = getattr(_locale(language), kind), getattr(english, kind)
            pairs |= {
                (name, english_names[code])
                for code, name in names.items()
                if code in english_names and name != code
            }
    return sorted(pairs)
