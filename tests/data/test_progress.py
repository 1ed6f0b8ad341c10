"""The bar of a preparation."""

import io
import sys

from xformer_kit.data.preparation.progress import reading_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_stays_when_all_texts_are_read(monkeypatch):
    """A tokenizer learns afterwards, which may take long."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    with reading_progress("Learning", 4) as progress:
        texts = progress(["ab", "cd"])
        assert next(texts) == "ab"
        assert list(texts) == ["cd"]
        assert "Learning" in screen.getvalue() and "100%" in screen.getvalue()
        assert screen.getvalue().startswith("\r\x1b[2K")


def test_there_is_no_bar_without_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := io.StringIO())
    with reading_progress("Learning", 4) as progress:
        assert list(progress(["ab", ("c", "d")])) == ["ab", ("c", "d")]
    assert screen.getvalue() == ""
