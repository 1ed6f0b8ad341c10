"""A small config, and a working directory for a simulated study."""

import os

import pytest

from tasks.study import search as searching
from xformer_kit import compose


@pytest.fixture(scope="module")
def config():
    return compose(["model.layers=1"])


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(searching, "to_overrides", lambda config: [])
    monkeypatch.setattr(os, "fsync", lambda file: None)  # not needed here
    return tmp_path
