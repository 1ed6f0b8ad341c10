"""Where a search keeps its trials: what is opened, and what is refused by one sentence."""

from pathlib import Path

import optuna
import pytest
from sqlalchemy.exc import OperationalError

from tasks.study import storage
from tasks.study.storage import open_storage
from xformer_kit.registry import ConfigError


def test_a_storage_that_is_none_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("no journal\n")
    for where in (
        "text",
        "nowhere/at/all",
        "nosuch://host/db",
        "sqlite:///nowhere/at/all.db",
        str(tmp_path),
    ):
        with pytest.raises(
            ConfigError, match=r"^study\.storage: .* cannot be used as a search's storage: "
        ) as error:
            open_storage(where)
        assert "\n" not in str(error.value)


def test_a_database_that_another_process_is_making_is_opened_behind_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked, real = [], optuna.storages.RDBStorage

    def late(where, **options):
        asked.append(where)
        if len(asked) < 3:
            raise OperationalError(
                "CREATE TABLE trials", {}, Exception("table trials already exists")
            )
        return real(where, **options)

    monkeypatch.setattr(optuna.storages, "RDBStorage", late)
    monkeypatch.setattr(storage, "ATTEMPT_INTERVAL", 0.0)
    assert open_storage("sqlite:///new.db").get_all_studies() == [] and len(asked) == 3


@pytest.mark.parametrize(
    ("where", "way"),
    [
        ("postgresql://me:word@host/db", "Install the database's driver: pip install "),
        ("postgres://me:word@host/db", "Write postgresql://me:***@host/db."),
    ],
)
def test_a_database_without_its_driver_says_what_to_install(monkeypatch, where, way):
    # SQLAlchemy 2.1 takes the first of them, 2.0 the second
    monkeypatch.setattr("builtins.__import__", _without(("psycopg", "psycopg2"), __import__))
    with pytest.raises(ConfigError) as error:
        open_storage(where)
    assert way in str(error.value) and "word" not in str(error.value)


def _without(modules, found):
    def importing(name, globals=None, locals=None, fromlist=(), level=0):
        if not level and name in modules:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return found(name, globals, locals, fromlist, level)

    return importing
