"""The storage of a search is opened, or refused with one sentence."""

from pathlib import Path

import optuna
import pytest
from sqlalchemy.exc import OperationalError

from tasks.study import storage
from tasks.study.storage import open_storage
from xformer_kit.registry import ConfigError


def test_a_path_or_url_that_is_no_storage_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("no journal\n")
    for url in (
        "text",
        "nowhere/at/all",
        "nosuch://host/db",
        "sqlite:///nowhere/at/all.db",
        str(tmp_path),
    ):
        with pytest.raises(
            ConfigError, match=r"^study\.storage: .* cannot be used as a search's storage: "
        ) as error:
            open_storage(url)
        assert "\n" not in str(error.value)


def test_a_database_that_another_process_creates_is_opened_after_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    urls, real = [], optuna.storages.RDBStorage

    def fail_twice(url, **options):
        urls.append(url)
        if len(urls) < 3:
            raise OperationalError(
                "CREATE TABLE trials", {}, Exception("table trials already exists")
            )
        return real(url, **options)

    monkeypatch.setattr(optuna.storages, "RDBStorage", fail_twice)
    monkeypatch.setattr(storage, "ATTEMPT_INTERVAL", 0.0)
    assert open_storage("sqlite:///new.db").get_all_studies() == [] and len(urls) == 3


@pytest.mark.parametrize("url", ["postgresql://me:word@host/db", "postgres://me:word@host/db"])
def test_an_error_has_its_reason_and_no_password(monkeypatch, url):
    # SQLAlchemy 2.1 takes the first of them, 2.0 the second
    monkeypatch.setattr("builtins.__import__", _without(("psycopg", "psycopg2"), __import__))
    with pytest.raises(ConfigError) as error:
        open_storage(url)
    assert "word" not in str(error.value)
    assert ("No module named 'psycopg" if "ql:" in url else "postgres") in str(error.value)


def _without(modules, real_import):
    """Returns an import function that does not find some modules."""

    def importing(name, globals=None, locals=None, fromlist=(), level=0):
        if not level and name in modules:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return real_import(name, globals, locals, fromlist, level)

    return importing
