import os
import random
import re
import struct
import subprocess
import sys
from dataclasses import MISSING, fields

import pytest
import torch

from tasks.checkpoints import checkpoints
from tasks.process.exit_codes import NoRun, NotSaved
from xformer_kit.checkpoint import Checkpoint, DamagedError


def checkpoint(step: int, weight: torch.Tensor) -> Checkpoint:
    return Checkpoint(
        state_dict={"w": weight},
        global_step=step,
        optimizer={"param_groups": [], "state": {}},
        metric_sums=(0.0, 0.0, 0.0),
        best_steps=[],
        validation={},
        skipped_steps=0,
        accumulate=1,
        spent={},
        metrics_csv={"rows": 0, "columns": 0, "sha256": ""},
        world_size=1,
        config="{}",
        data_fingerprint="",
        versions={},
    )


def state(step: int) -> Checkpoint:
    generator = torch.Generator().manual_seed(step)
    return checkpoint(step, torch.randn(50, 41, generator=generator))


def save(folder, *steps):
    for step in steps:
        checkpoints.write(state(step), folder)


def test_the_last_two_checkpoints_are_kept(tmp_path):
    save(tmp_path, 1, 2, 3)
    assert {path.name: checkpoints.read(path).global_step for path in tmp_path.iterdir()} == {
        "last.ckpt": 3,
        "previous.ckpt": 2,
    }


def test_the_checkpoint_of_the_higher_step_is_loaded_whatever_its_name(tmp_path):
    save(tmp_path, 1, 2)
    assert checkpoints.newest(tmp_path)[1].global_step == 2
    swapped = tmp_path / "last.ckpt", tmp_path / "previous.ckpt"
    for path, raw in zip(swapped, [path.read_bytes() for path in swapped][::-1], strict=True):
        path.write_bytes(raw)
    assert checkpoints.newest(tmp_path)[1].global_step == 2


def test_a_checkpoint_loads_with_weights_only_as_it_was_saved(tmp_path):
    save(tmp_path, 5)
    path, found = checkpoints.newest(tmp_path)
    assert path.name == "last.ckpt"
    assert torch.equal(found.state_dict["w"], state(5).state_dict["w"])


@pytest.mark.parametrize("cut", range(20))
def test_a_truncated_checkpoint_falls_back_to_the_one_before_it(tmp_path, cut, caplog):
    save(tmp_path, 1, 2)
    intact = (tmp_path / "last.ckpt").read_bytes()
    (tmp_path / "last.ckpt").write_bytes(intact[: random.Random(cut).randrange(len(intact))])
    caplog.set_level("WARNING", logger="xformer")
    checkpoints.log.propagate = True
    path, found = checkpoints.newest(tmp_path)
    assert (path.name, found.global_step) == ("previous.ckpt", 1)
    assert "last.ckpt is damaged" in caplog.text


@pytest.mark.parametrize("place", range(20))
def test_a_changed_byte_of_the_weights_is_noticed(tmp_path, place):
    save(tmp_path, 1, 2)
    raw = bytearray((tmp_path / "last.ckpt").read_bytes())
    start = raw.find(state(2).state_dict["w"].numpy().tobytes()[:16])
    raw[start + random.Random(place).randrange(50 * 41 * 4)] ^= 1
    (tmp_path / "last.ckpt").write_bytes(bytes(raw))
    assert checkpoints.newest(tmp_path)[1].global_step == 1


def test_best_is_loaded_if_last_is_damaged(tmp_path):
    save(tmp_path, 1)
    checkpoints.keep(tmp_path, 1, best=[1], count=1, every=None)
    (tmp_path / "last.ckpt").write_bytes(b"")
    path, found = checkpoints.newest(tmp_path)
    assert (path.name, found.global_step) == ("best.ckpt", 1)


def test_a_kept_step_is_loaded_if_all_others_are_damaged(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
        checkpoints.keep(tmp_path, step, best=[1], count=2, every=2)
    for name in ("last", "previous", "best"):
        (tmp_path / f"{name}.ckpt").unlink()
        (tmp_path / f"{name}.ckpt").write_bytes(b"")
    path, found = checkpoints.newest(tmp_path)
    assert (path.name, found.global_step) == ("step_2.ckpt", 2)


def test_kept_files_are_copies(tmp_path):
    save(tmp_path, 1)
    for _ in range(2):
        checkpoints.keep(tmp_path, 1, best=[1], count=2, every=None)
    names = ["best.ckpt", "last.ckpt", "step_1.ckpt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert len({(tmp_path / name).read_bytes() for name in names}) == 1
    assert all((tmp_path / name).stat().st_nlink == 1 for name in names)


def test_newest_is_none_without_files_and_raises_if_all_are_damaged(tmp_path):
    assert checkpoints.newest(tmp_path) is None
    save(tmp_path, 1, 2)
    (tmp_path / "last.ckpt").write_bytes(b"PK")
    (tmp_path / "previous.ckpt").write_bytes(b"")
    with pytest.raises(
        NoRun, match=r"^resume: no checkpoint of the run can be read; .*last.ckpt.*previous.ckpt"
    ):
        checkpoints.newest(tmp_path)


@pytest.mark.extended
def test_any_flipped_bit_of_the_archives_directory_falls_back(tmp_path):
    """The directory has no checksum of its own: a flip may name another method, size, place or
    file.
    """
    save(tmp_path, 1)
    small = checkpoint(2, torch.arange(3.0))
    checkpoints.write(small, tmp_path)
    intact = (tmp_path / "last.ckpt").read_bytes()
    start = struct.unpack("<I", intact[-6:-2])[0]  # where the directory begins, as its end states
    folder = [
        8 * (found.start() + 38) + 4 for found in re.finditer(b"PK\1\2", intact)
    ]  # marks an entry as a folder
    bits = random.Random(0).sample(range(8 * start, 8 * len(intact)), 400) + folder
    steps = set()
    for bit in bits:
        raw = bytearray(intact)
        raw[bit // 8] ^= 1 << bit % 8
        (tmp_path / "last.ckpt").write_bytes(bytes(raw))
        found = checkpoints.newest(tmp_path)[1]
        steps.add(found.global_step)
        if found.global_step == 2:
            assert torch.equal(found.state_dict["w"], small.state_dict["w"])
    assert steps == {1, 2}  # some bits have no meaning


def test_a_file_that_is_no_checkpoint_falls_back(tmp_path):
    save(tmp_path, 1)
    for number, foreign in enumerate(({"model": {}}, [1, 2], torch.zeros(2))):
        checkpoints.write_file(foreign, tmp_path / "last.ckpt")
        checkpoints.write_file(state(number).entries(), tmp_path / "previous.ckpt")
        assert checkpoints.newest(tmp_path)[1].global_step == number


LIMITED = """
import resource, sys, torch
from pathlib import Path
from tasks.checkpoints import checkpoints
from tasks.process.exit_codes import NotSaved
from tests.tasks.checkpoints.test_checkpoints import checkpoint
folder = Path(sys.argv[1])
checkpoints.write(checkpoint(1, torch.zeros(1)), folder)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    checkpoints.write(checkpoint(2, torch.zeros(100_000)), folder)
except NotSaved as error:
    print(error)
print(checkpoints.newest(folder)[1].global_step, sorted(p.name for p in folder.iterdir()))
"""


@pytest.mark.extended
def test_a_full_disk_leaves_the_last_checkpoint_and_is_reported(tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder)], capture_output=True, text=True
    )
    message, rest = done.stdout.splitlines()
    assert (
        message == f"A checkpoint could not be written into {folder}: File too large. The last good"
        " checkpoint is untouched. Make room."
    ), done.stderr
    assert rest == "1 ['last.ckpt']"


def test_a_folder_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    with pytest.raises(NotSaved, match="could not be written into"):
        save(tmp_path / "checkpoints", 1)


WRONG = {
    "global_step": ["ten", -1, 2.5, True, None, 10**30],
    "state_dict": [None, {"w": 3}, {3: torch.zeros(1)}, torch.zeros(2)],
    "average": [[], {"w": "x"}],
    "optimizer": [
        {},
        [],
        {"state": {}},
        {"param_groups": {}, "state": {}},
        {"param_groups": [{}], "state": {}},
        {"param_groups": [3], "state": {}},
        {"param_groups": [{"params": []}], "state": []},
        {"param_groups": [{"params": []}], "state": {0: 3}},
    ],
    "metric_sums": [[0.0] * 3, (0.0, 0.0), (0.0, 0.0, "0"), torch.zeros(3)],
    "best_steps": [None, ["low"], [(1, 2.0, 3)], [(1.5, 2.0)], [(1, "low")], [(True, 2.0)]],
    "validation": [None, {"loss": "low"}, {1: 2.0}],
    "skipped_steps": ["0", -1, None],
    "accumulate": [0, "1", 1.0],
    "spent": [None, {"seconds": None}],
    "metrics_csv": [None, {}, {"rows": 1}, {"rows": "1", "columns": 3, "sha256": ""}],
    "world_size": [0, "1"],
    "config": [None, 3, {}],
    "data_fingerprint": [None, 5],
    "versions": [None],
    "callbacks": [[], {1: {}}],
    "scaler": [None, {"scale": "x"}],
    "stop": [None, (3, "a callback"), ("3", "a", "b"), (3, None, "")],
    "shards": [None, {"folder": 3, "files": {}}, {"folder": "shards_1", "files": {"a": "x"}}],
}


@pytest.mark.parametrize(
    ("key", "number"), [(key, number) for key in WRONG for number in range(len(WRONG[key]))]
)
def test_a_valid_archive_with_a_wrong_value_falls_back(tmp_path, caplog, key, number):
    value = WRONG[key][number]
    save(tmp_path, 1)
    os.replace(tmp_path / "last.ckpt", tmp_path / "previous.ckpt")
    checkpoints.write_file(state(2).entries() | {key: value}, tmp_path / "last.ckpt")
    caplog.set_level("WARNING", logger="xformer")
    checkpoints.log.propagate = True
    assert checkpoints.newest(tmp_path)[1].global_step == 1
    assert f"last.ckpt is damaged (its {key}" in caplog.text and len(caplog.text) < 500
    (tmp_path / "previous.ckpt").unlink()
    with pytest.raises(NoRun, match=rf"^resume: no checkpoint of the run can be read; .*its {key}"):
        checkpoints.newest(tmp_path)


def test_every_entry_that_a_run_writes_is_a_field_with_wrong_values(begin):
    _, folder = begin("run", "ema.decay=0.9")
    found = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert {f.name for f in fields(Checkpoint)} == set(WRONG)
    assert set(found) <= set(WRONG) <= set(found) | {"scaler", "callbacks", "stop", "shards"}


@pytest.mark.parametrize("missing", [f.name for f in fields(Checkpoint) if f.default is MISSING])
def test_a_file_without_a_field_of_a_checkpoint_falls_back(tmp_path, missing):
    save(tmp_path, 1, 2)
    entries = {key: value for key, value in state(3).entries().items() if key != missing}
    checkpoints.write_file(entries, tmp_path / "last.ckpt")
    assert checkpoints.newest(tmp_path)[1].global_step == 1
    with pytest.raises(DamagedError, match=f"^it has no {missing}$"):
        checkpoints.read(tmp_path / "last.ckpt")
