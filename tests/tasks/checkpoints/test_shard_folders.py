"""Directories with the tensors of checkpoints of sharded models."""

from tasks.checkpoints import checkpoints


def test_only_directories_that_no_checkpoint_has_are_removed(tmp_path):
    for step in (1, 2, 3):
        (tmp_path / f"shards_{step}").mkdir()
    for name, step in (("last", 3), ("previous", 2)):
        shards = {"folder": f"shards_{step}", "files": {}}
        checkpoints.write_file({"shards": shards}, tmp_path / f"{name}.ckpt")
    (tmp_path / "last.ckpt.aside").write_bytes(b"damaged")
    before = (tmp_path / "previous.ckpt").read_bytes()
    (tmp_path / "previous.ckpt").write_bytes(before[:100])
    checkpoints.remove_temporary_files(tmp_path)
    assert len(list(tmp_path.glob("shards_*"))) == 3  # that of the damaged one is not known
    (tmp_path / "previous.ckpt").write_bytes(before)
    checkpoints.remove_temporary_files(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("shards_*")) == ["shards_2", "shards_3"]
