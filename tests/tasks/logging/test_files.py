import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tasks.logging.files import replace_text


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_replaced_with_its_line_breaks_and_no_other_file_remains(tmp_path, sync):
    file = tmp_path / "a.csv"
    file.write_text("old")
    replace_text(file, "é,1\r\n2\n", sync=sync)
    assert file.read_bytes() == "é,1\r\n2\n".encode()
    assert list(tmp_path.iterdir()) == [file]


def test_a_process_that_ends_before_the_rename_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "a.csv"
    file.write_text("old")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        replace_text(file, "new")
    assert file.read_text() == "old"


def _replace_often(file, text):
    for _ in range(300):
        replace_text(file, text)


def test_two_processes_replace_one_file(tmp_path):
    file = tmp_path / "plan.json"
    with ProcessPoolExecutor(2) as processes:
        list(processes.map(partial(_replace_often, file), ["one", "other"]))
    assert file.read_text() in ("one", "other")
    assert list(tmp_path.iterdir()) == [file]
