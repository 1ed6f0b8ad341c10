"""Dates and names of the CLDR: held-out data are never in training, and draws are reproducible."""

import importlib.util
from datetime import date

import pytest

from tests.messages import messages
from xformer_kit.data.corpus import CORPORA, cldr
from xformer_kit.data.corpus.cldr import Dates, Names
from xformer_kit.registry import Context


def faults(name, **options):
    return messages(CORPORA.faults({"name": name, **options}, "data", Context()))


def pairs(corpus, split):
    return list(corpus.pairs(split))


@pytest.fixture(scope="module")
def dates():
    pytest.importorskip("babel")
    return Dates(pairs=3000, examples=300)


@pytest.fixture(scope="module")
def names():
    pytest.importorskip("babel")
    return Names()


@pytest.mark.extended
def test_dates_are_formatted_in_their_language(dates):
    from babel.dates import parse_date

    assert [len(pairs(dates, split)) for split in dates.splits] == [3000, 300, 300]
    german = Dates(pairs=3000, formats=("long",), held_out=0.0001)
    found = [
        (words, iso)
        for words, iso in pairs(german, "train")
        if ". Oktober " in words and "." in words[:3]
    ]
    assert found
    for words, iso in found:
        day, _, year = words.split()
        assert date.fromisoformat(iso) == date(int(year), 10, int(day.rstrip(".")))
    short = Dates(pairs=20, formats=("short",))
    assert all(
        date.fromisoformat(iso).year in range(1900, 2100) for _, iso in pairs(short, "train")
    )
    assert (
        parse_date("23.06.1987", locale="de").isoformat() == "1987-06-23"
    )  # Babel itself reads what it writes


@pytest.mark.extended
def test_languages_and_days_of_the_test_set_are_not_in_training(dates):
    assert len(dates.locales("train")) + len(dates.locales("test")) > 270
    assert not set(dates.locales("train")) & set(dates.locales("test"))
    assert dates.locales("valid") == dates.locales("train")
    days = {split: {iso for _, iso in pairs(dates, split)} for split in dates.splits}
    assert not days["train"] & (days["valid"] | days["test"])
    many_dates = Dates(
        examples=20_000, first=2000, last=2039
    )  # nearly every day that is kept is drawn
    assert 0.095 < len({iso for _, iso in pairs(many_dates, "valid")}) / (40 * 365) < 0.105
    texts = {split: {text for text, _ in pairs(dates, split)} for split in dates.splits}
    assert not texts["train"] & (texts["valid"] | texts["test"])


def test_no_two_languages_write_all_dates_in_the_same_way():
    pytest.importorskip("babel")
    from babel.dates import format_date

    days = [date(2001, month, 5) for month in range(1, 13)]
    written = [
        tuple(format_date(d, f, locale=name) for f in ("full", "long", "medium") for d in days)
        for name in cldr._date_languages()
    ]
    assert len(set(written)) > 0.98 * len(written)


def test_a_draw_is_the_same_each_time_and_differs_by_seed(dates):
    again = Dates(pairs=3000, examples=300)
    assert (
        pairs(again, "train") == pairs(dates, "train")
        and again.fingerprint() == dates.fingerprint()
    )
    assert pairs(Dates(pairs=3000, examples=300, examples_seed=1), "train") != pairs(dates, "train")
    assert pairs(Dates(pairs=30), "train") == pairs(dates, "train")[:30]
    assert again.stamp() == dates.stamp() != Dates(pairs=3000).stamp()


def test_years_are_within_bounds():
    pytest.importorskip("babel")
    years = {
        date.fromisoformat(iso).year
        for _, iso in pairs(Dates(first=1999, last=2000, pairs=200), "train")
    }
    assert years == {1999, 2000}


@pytest.mark.extended
def test_targets_are_english_names_and_splits_share_no_names(names):
    train, valid, test = (pairs(names, split) for split in names.splits)
    known = dict(train + valid + test)
    assert (
        known["Frankreich"] == "France"
        and known["Deutsch"] == "German"
        and known["日本"] == "Japan"
    )
    assert len(train) > 60_000 and all(
        0.04 < len(part) / len(train) < 0.07 for part in (valid, test)
    )
    sources = [{name for name, _ in part} for part in (train, valid, test)]
    assert (
        not sources[0] & sources[1] and not sources[0] & sources[2] and not sources[1] & sources[2]
    )
    assert len(set(train)) == len(train)


def test_names_can_be_only_those_of_territories():
    pytest.importorskip("babel")
    known = dict(pairs(Names(kinds=("territories",)), "train"))
    assert "France" in known.values() and "German" not in known.values()


def test_faults():
    assert faults("dates", examples=1, pairs=1) == []
    assert faults("dates", examples=0) == ["data.examples: must be at least 1; got 0."]
    assert faults("dates", held_out=1.0, first=0, last=-1, formats=[]) == [
        "data.first: must be at least 1; got 0.",
        "data.last: must be at least 0; got -1.",
        "data.formats: must not be empty; got []. Try [long].",
        "data.held_out: must be above 0 and below 1; got 1.0. Try 0.1.",
    ]
    assert faults("names", held_out=0.5, kinds=[]) == [
        "data.kinds: must not be empty; got []. Try [territories].",
        "data.held_out: must be above 0 and below 0.5; got 0.5. Try 0.05.",
    ]


@pytest.mark.parametrize("name", ["dates", "names"])
def test_a_missing_babel_is_a_fault(monkeypatch, name):
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    assert faults(name) == [
        f"data.name: corpus '{name}' needs the package babel; got none. Use pip install"
        " 'xformer_kit[data]'."
    ]
