"""What is kept of a composition changes nothing but the time that it takes."""

import copy
import os
from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from xformer_kit.config import composing
from xformer_kit.config.hydra import _loader, compose, opened, read, unfolded
from xformer_kit.ffn import FFNS, MLP
from xformer_kit.registry import ConfigError

GLOBAL = "# @package _global_\n"
PLAIN = [  # what is kept of one serves the others
    [],
    ["model=encoder_decoder", "attn.heads=8", "model.decoder.norm.name=layer"],
    [
        "position={name: rotary, theta: 1e6}",
        "+model.decoder.last=[a]",
        "++model.decoder.variants.a.ffn.name=glu",
    ],
    ["experiment=copy", "model.dim=16", "~model.dropout", "task=language_modeling"],
    ["experiment=null", "task=seq2seq", "data=tsv", "data.path='a b.tsv'", "~callbacks"],
    ["attn=linear", "attn.heads=2", "attn=multi_head", "attn.heads=4"],
    ["study=norm_placement", "study.seeds=3", "study.factors={norm: [layer]}"],
    ["hydra/launcher=basic", "attn.heads=2", "hydra.mode=MULTIRUN"],
    [
        "trainer=ddp",
        "trainer.devices=2",
        "+what.is.this=[1, 2.5, null, 'x']",
        "model.dim=64",
        "model.dim=32",
    ],
]
OTHERS = [  # left to Hydra
    ["attn.heads=4", "model.dim=${attn.heads}"],
    ["hydra.run.dir=somewhere", "hydra.job.chdir=false"],
    ["++a=${hydra.verbose}", "~a"],
    ["name='${oc.env:\\'HOME\\'}'"],
    ["hydra={output_subdir: x}"],
    ["++hydra={output_subdir: x}"],
    ["+hydra={a: 1}"],
    ["~hydra"],
    ["attn=linear", "~model.nothing"],
    ["attn=linear", "hydra.nothing=1"],
    ["~model.nothing", "hydra/launcher=nobodys"],
    ["+model.dim=3"],
    ["+extra=a"],
    ["attn@model=linear"],
    ["experiment=[copy,recall]"],
]


def fresh():
    composing._kept.clear()


def by_hydra(loader, texts, name, faults):
    try:
        config = loader.load_configuration(name or "train", texts, run_mode=RunMode.RUN)
        OmegaConf.set_readonly(config, False)
        OmegaConf.set_struct(config, False)
        config.pop("hydra")
        OmegaConf.resolve(config)
        return config
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        what = " ".join(str(error).split("\n")[0].split())
        faults.append(
            f"{getattr(error, 'full_key', None) or 'config'}: cannot be composed:"
            f" {what.rstrip('.')}."
        )


def agree(texts, config_dir=None, name=None, rounds=([],)):
    """Whether a line is composed as by Hydra, with the same faults."""
    for more in rounds:
        of_hydra, ours = [], []
        expected = by_hydra(_loader(config_dir), [*texts, *more], name, of_hydra)
        found = composing.loaded(_loader(config_dir), [*texts, *more], name, ours)
        assert (found, ours) == (expected, of_hydra)
        assert str(found) == str(expected)  # 1 is not 1.0
    return expected


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_it_is_what_hydra_composes_of_the_whole_line(words):
    """At first, and where its choices were composed before, with other values."""
    fresh()
    loader, overrides, _ = read(unfolded(words), None)
    rounds = [], ["++model.dim=48", "++task.added=1"], []
    assert agree([opened(loader, override) for override in overrides], rounds=rounds)
    assert len(composing._kept) == 1


@pytest.mark.parametrize("texts", OTHERS, ids=" ".join)
def test_so_is_what_is_left_to_hydra(texts):
    agree(texts)


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
    write(
        file, "model: {dim: 64}\nattn: {heads: 2}"
    )  # as long, and in the same instant but for a nanosecond
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
    assert (
        composing.loaded(_loader(None), ["ffn=again"], None, faults) is None
        and "ffn/again" in faults[0]
    )


def tree(root: Path, **files: str) -> str:
    for name, text in files.items():
        file = root / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return str(root)


def test_a_file_outside_of_the_directories_is_read_each_time(tmp_path):
    mine = tree(tmp_path / "mine", experiment__e=f"{GLOBAL}defaults: [../../shared/base, _self_]\n")
    for dim in (32, 64):
        tree(tmp_path, shared__base=f"{GLOBAL}model: {{dim: {dim}}}\n")
        assert composing.loaded(_loader(mine), ["experiment=e"], None, []).model.dim == dim


def test_so_is_a_directory_that_a_file_or_the_line_adds(tmp_path):
    """Whose groups only Hydra knows."""
    fresh()
    more = tree(tmp_path / "more", extra__a="x: 1\n")
    own = tree(
        tmp_path / "own",
        mine=f"defaults: [train, _self_]\nhydra: {{searchpath: ['file://{more}']}}\n",
    )
    for texts in ([], ["+extra=a"], ["++extra=a"], ["+extra@model=a"]):
        agree(texts, own, "mine")
        agree([f"hydra.searchpath=['file://{more}']", *texts])
    assert not composing._kept or all(key[0] == "train" for key in composing._kept)


def test_what_the_environment_says_is_asked_each_time(tmp_path, monkeypatch):
    choice = (
        f"{GLOBAL}defaults: [{{/extra@_global_: '${{oc.env:WHICH}}'}}, _self_]\nseen:"
        " ${oc.env:WHICH}\n"
    )
    mine = tree(
        tmp_path, experiment__e=choice, extra__a="model: {dim: 32}\n", extra__b="model: {dim: 64}\n"
    )
    for which, dim in (("a", 32), ("b", 64)):
        monkeypatch.setenv("WHICH", which)
        found = composing.loaded(_loader(mine), ["experiment=e"], None, [])
        assert (found.model.dim, found.seen) == (dim, which)


def test_a_file_that_is_no_yaml_is_told_with_its_line(tmp_path):
    mine = tree(
        tmp_path,
        experiment__e=f"{GLOBAL}model: {{dim: 80\nattn: {{heads: 2}}\n",
        experiment__f="a: 1\na: 2\n",
    )
    with pytest.raises(ConfigError) as error:
        compose(["experiment=e"], mine)
    (fault,) = error.value.faults
    assert (
        fault
        == f"{mine}/experiment/e.yaml, line 3: is no YAML: expected ',' or '}}', but got ':'. Mend"
        " that line, or the one above it."
    )
    with pytest.raises(
        ConfigError, match=r"f.yaml, line 2: is no YAML: found duplicate key a\. Mend"
    ):
        compose(["experiment=f"], mine)


def test_a_file_that_is_no_text_is_told_with_its_line(tmp_path):
    mine = tree(tmp_path, experiment__e="")
    (tmp_path / "experiment" / "e.yaml").write_bytes("a: 1\nb: caf\u00e9\n".encode("latin-1"))
    with pytest.raises(ConfigError) as error:
        compose(["experiment=e"], mine)
    (fault,) = error.value.faults
    assert (
        fault
        == f"{mine}/experiment/e.yaml, line 2: must be utf-8 text; got byte 0xE9. Save it as utf-8."
    )


def test_two_directories_with_the_same_files_are_two(tmp_path):
    tree(
        tmp_path,
        sub__experiment__e=f"{GLOBAL}model: {{dim: 80}}\n",
        experiment__e=f"{GLOBAL}model: {{dim: 96}}\n",
    )
    for _ in range(2):
        assert agree(["experiment=e", "++a=1"], str(tmp_path / "sub")) is not None
        assert compose(["experiment=e"], str(tmp_path / "sub"))["model"]["dim"] == 80
        assert compose(["experiment=e"], str(tmp_path))["model"]["dim"] == 96
        assert compose(["experiment=copy"], str(tmp_path)) == compose(
            ["experiment=copy"], str(tmp_path / "sub")
        )


def test_hydras_store_may_be_put_back_or_changed():
    """As the fixture hydra_restore_singletons of Hydra's own tests does."""
    before = copy.deepcopy(Singleton.get_state())
    first = compose(["norm=rms"])
    Singleton.set_state(before)
    assert compose(["norm=rms"]) == first
    ConfigStore.instance().store(group="norm", name="rms", node={"name": "rms", "eps": 0.5})
    assert compose(["norm=rms"]) == first  # a part is what is registered


def test_what_is_drawn_is_drawn_each_time():
    drawn = {
        str(composing.loaded(_loader(None), ["++x=shuffle([1,2,3,4,5,6,7,8])"], None, []).x)
        for _ in range(5)
    }
    assert len(drawn) > 1


def test_directories_that_cannot_be_looked_through_are_not_kept(tmp_path, monkeypatch):
    fresh()
    (tmp_path / "lost.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round").symlink_to(tmp_path)  # a directory without end
    assert (
        compose(["model.dim=16", "attn.heads=2"], str(tmp_path))["model"]["dim"] == 16
        and not composing._kept
    )
    monkeypatch.setattr(composing, "MOST", 3)
    assert compose(["model.dim=16", "attn.heads=2"])["model"]["dim"] == 16 and not composing._kept


def test_no_more_is_kept_than_there_is_room_for(monkeypatch):
    fresh()
    monkeypatch.setattr(composing, "KEPT", 2)
    for name in ("rotary", "alibi", "none", "alibi"):
        assert compose([f"position={name}"])["position"]["name"] == name
    assert len(composing._kept) == 2
