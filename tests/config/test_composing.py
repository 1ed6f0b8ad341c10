"""What is kept of a composition changes nothing but the time that it takes."""

import os
from pathlib import Path

import pytest
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf

from xformer_kit.config import composing
from xformer_kit.config.hydra import _loader, compose, opened, read, unfolded
from xformer_kit.ffn import FFNS, MLP
from xformer_kit.registry import ConfigError

LINES = [
    [],
    ["model=encoder_decoder", "attn.heads=8", "model.decoder.norm.name=layer"],
    ["position={name: rotary, theta: 1e6}", "+model.decoder.last=[a]", "++model.decoder.variants.a.ffn.name=glu"],
    ["experiment=copy", "model.dim=16", "~model.dropout", "task=language_modeling"],
    ["experiment=null", "task=seq2seq", "data=tsv", "data.path='a b.tsv'", "~callbacks"],
    ["attn=linear", "attn.heads=2", "attn=multi_head", "attn.heads=4", "model.dim=${attn.heads}"],
    ["study=norm_placement", "study.seeds=3", "study.factors={norm: [layer]}"],
    ["hydra/launcher=basic", "attn.heads=2", "hydra.run.dir=somewhere", "hydra.job.chdir=false"],
    ["trainer=ddp", "trainer.devices=2", "+what.is.this=[1, 2.5, null, 'x']", "model.dim=64", "model.dim=32"],
]


def by_hydra(loader, texts):
    config = loader.load_configuration("train", texts, run_mode=RunMode.RUN)
    OmegaConf.set_readonly(config, False)
    OmegaConf.set_struct(config, False)
    config.pop("hydra")
    OmegaConf.resolve(config)
    return config


def fresh():
    composing._kept.clear()


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_it_is_what_hydra_composes_of_the_whole_line(words):
    """At first, and again where its choices were composed before and left other values behind."""
    fresh()
    loader, overrides, _ = read(unfolded(words), None)
    texts, faults = [opened(loader, override) for override in overrides], []
    expected = by_hydra(loader, texts)
    for more in ([], ["++model.dim=48", "++attn.heads=3", "++task.added=1"], []):
        found = composing.loaded(loader, [*texts, *more], None, faults)
        assert more or (found == expected and str(found) == str(expected))  # 1 is not 1.0
    assert not faults and len(composing._kept) == 1


@pytest.mark.parametrize("texts", [["attn=linear", "~model.nothing"], ["attn=linear", "hydra.nothing=1"]])
def test_what_hydra_cannot_compose_is_told_as_by_hydra(texts):
    loader = _loader(None)
    with pytest.raises(HydraException) as error:
        by_hydra(loader, texts)
    for _ in range(2):
        faults = []
        assert composing.loaded(loader, texts, None, faults) is None
        what = " ".join(str(error.value).split("\n")[0].split())
        assert faults == [f"config: cannot be composed: {what.rstrip('.')}."]


def test_whoever_changes_a_config_changes_no_other():
    first = compose(["attn.heads=2"])
    first["attn"]["heads"] = 7
    first["data"].clear()
    assert compose(["attn.heads=2"]) == compose(["attn.heads=2"]) != first


def test_a_file_is_read_anew_when_it_has_changed_and_when_it_is_new(tmp_path):
    file, other = tmp_path / "experiment" / "mine.yaml", tmp_path / "experiment" / "other.yaml"
    file.parent.mkdir()

    def write(to: Path, text: str) -> None:
        to.write_text(f"# @package _global_\n{text}\n")

    write(file, "model: {dim: 32}\nattn: {heads: 2}")
    words = ["experiment=mine"]
    assert compose(words, str(tmp_path))["model"]["dim"] == 32
    write(file, "model: {dim: 48}\nattn: {heads: 2}")
    assert compose(words, str(tmp_path))["model"]["dim"] == 48
    before = file.stat()
    write(file, "model: {dim: 64}\nattn: {heads: 2}")  # as long, and in the same instant but for a nanosecond
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert compose(words, str(tmp_path))["model"]["dim"] == 64
    with pytest.raises(ConfigError, match="no choice is called 'other'"):
        compose(["experiment=other"], str(tmp_path))
    write(other, "model: {dim: 80}\nattn: {heads: 2}")
    assert compose(["experiment=other"], str(tmp_path))["model"]["dim"] == 80


@pytest.mark.parametrize("default", [2, 1.0])
def test_a_part_that_is_registered_anew_is_composed_anew(default):
    """Also where its new default equals the old one, and is another."""
    found = []
    for value in (1, default):

        class Again(MLP):
            def __init__(self, dim: int, *, factor: float = value):
                super().__init__(dim)

        FFNS.register("again")(Again)
        try:
            found.append(composing.loaded(_loader(None), ["ffn=again"], None, []).ffn.factor)
        finally:
            FFNS.forget(__name__)
    assert list(map(str, found)) == ["1", str(default)]
    faults = []
    assert composing.loaded(_loader(None), ["ffn=again"], None, faults) is None and "ffn/again" in faults[0]


def test_files_that_a_file_names_and_large_directories_are_not_kept(tmp_path, monkeypatch):
    fresh()
    (tmp_path / "more" / "experiment").mkdir(parents=True)
    (tmp_path / "own").mkdir()
    own = f"defaults: [train, _self_]\nhydra: {{searchpath: ['file://{tmp_path}/more']}}\n"
    (tmp_path / "own" / "mine.yaml").write_text(own)
    file = tmp_path / "more" / "experiment" / "far.yaml"
    faults = []
    for dim in (32, 64):
        file.write_text(f"# @package _global_\nmodel: {{dim: {dim}}}\n")
        found = composing.loaded(_loader(str(tmp_path / "own")), ["experiment=far"], "mine", faults)
        assert not faults and found.model.dim == dim
    assert not composing._kept
    (tmp_path / "lost.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round").symlink_to(tmp_path)  # a directory without end
    assert compose(["model.dim=16", "attn.heads=2"], str(tmp_path))["model"]["dim"] == 16 and not composing._kept
    monkeypatch.setattr(composing, "MOST", 3)
    assert compose(["model.dim=16", "attn.heads=2"])["model"]["dim"] == 16 and not composing._kept


def test_no_more_is_kept_than_there_is_room_for(monkeypatch):
    fresh()
    monkeypatch.setattr(composing, "KEPT", 2)
    for name in ("rotary", "alibi", "none", "alibi"):
        assert compose([f"position={name}"])["position"]["name"] == name
    assert len(composing._kept) == 2
