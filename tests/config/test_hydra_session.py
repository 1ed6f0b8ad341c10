"""A line is composed as hydra.compose composes it, whether or not its choices are kept."""

import copy
import os
import re
import shutil
import sys
from pathlib import Path

import hydra
import pytest
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton
from hydra.core.utils import JobRuntime
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from xformer_kit.config import conf_dir
from xformer_kit.config.hydra import hydra_session
from xformer_kit.config.hydra.hydra_session import HydraSession, hydra_word, open_session
from xformer_kit.config.line.composition import compose, compose_resolved
from xformer_kit.config.line.flags import parse_flags
from xformer_kit.config.line.overrides import OverridesParser, parse
from xformer_kit.config.options.settings import default_settings
from xformer_kit.ffn import FFNS, MLP
from xformer_kit.registry import ConfigError
from xformer_kit.registry.messages import first_line

pytestmark = pytest.mark.extended

GLOBAL = "# @package _global_\n"
PLAIN = [  # choices and values
    [],
    ["model=encoder_decoder", "attn.heads=8", "model.decoder.norm.name=layer"],
    [
        "position={name: rotary, theta: 1e6}",
        "+model.decoder.last=[a]",
        "++model.decoder.variants.a.ffn.name=glu",
    ],
    ["experiment=copy", "model.dim=16", "~model.dropout", "task=language_modeling"],
    [
        "experiment=null",
        "task_defaults=null",
        "task=seq2seq",
        "data=tsv",
        "data.path='a b.tsv'",
        "~callbacks",
    ],
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
OTHERS = [  # with something else, or with an error
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


def parsed(words):
    return OverridesParser.create().parse_overrides(words)


def resolved(words, config_dir=None, name=None):
    return compose_resolved(open_session(config_dir, name), parsed(words))[0]


def by_hydra(words, config_dir, name):
    """(config, faults) of hydra.compose; `config_dir` is the only directory besides ours."""
    open_session()
    added = [f"hydra.searchpath=['file://{config_dir}']"] if config_dir else []
    try:
        with hydra.initialize_config_dir(conf_dir(), version_base="1.3"):
            config = hydra.compose(name or "train", [*added, *words])
        OmegaConf.set_struct(config, False)
        OmegaConf.resolve(config)
        return config, []
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        return None, [f"cannot be composed: {first_line(str(error)).rstrip('.')}."]


def agree(words, config_dir=None, name=None):
    """Whether a line is composed as by Hydra, with the same faults."""
    session, faults = open_session(config_dir, name), []
    overrides, config = parsed(words), None
    try:
        config, _ = compose_resolved(session, overrides)
        whole, with_hydra = compose_resolved(session, overrides, whole=True)
        assert str(whole) == str(config) and "hydra" in with_hydra
    except ConfigError as error:
        faults = [f"{fault.rule}." for fault in error.faults]
    expected = by_hydra([hydra_word(session, o) for o in overrides], config_dir, name)
    assert (config, faults) == expected
    assert str(config) == str(expected[0])  # 1 is not 1.0
    return config


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_the_config_is_the_one_that_hydra_composes(words):
    """Also where its choices were composed before, with other values."""
    session, overrides, _ = parse(words)
    words = [hydra_word(session, override) for override in overrides]
    first = str(agree(words))
    agree([*words, "++model.dim=48", "++task.added=1"])
    assert str(resolved(words)) == first


def test_choices_are_composed_once():
    session, words = HydraSession(), ["norm=layer", "hydra/launcher=basic", "seed=1"]
    for more in ([], ["model.dim=48"], ["attn.heads=2", "++task.added=1"]):
        compose_resolved(session, parsed([*words, *more]))
    assert session.pickled.cache_info().misses == 1


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_overrides_that_are_passed_to_hydra_unchanged_give_its_config(words):
    agree(words)


def test_settings_are_defined_once():
    """Their defaults are those of the dataclasses, of which conf/train.yaml repeats none."""
    defaults = default_settings()
    train = yaml.safe_load(Path(conf_dir(), "train.yaml").read_text())
    assert not defaults.keys() & train.keys()
    config = compose(data=False)
    for name in ("model", "data", "tokenizer"):
        config[name] = {key: config[name][key] for key in defaults[name]}
    assert {key: config[key] for key in defaults} == defaults
    assert list(config)[: len(defaults)] == list(defaults)


def test_composed_configs_share_no_objects():
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
def test_a_component_that_is_registered_anew_is_composed_anew(default):
    """Also where its new default equals the old one, and is another."""
    found = []
    for value in (1, default):

        class Again(MLP):
            def __init__(self, dim: int, *, factor: float = value):
                super().__init__(dim)

        FFNS.register("again")(Again)
        try:
            found.append(resolved(["ffn=again"])["ffn"]["factor"])
        finally:
            FFNS.forget(__name__)
    assert list(map(str, found)) == ["1", str(default)]
    with pytest.raises(ConfigError, match="no ffn is called 'again'"):
        resolved(["ffn=again"])


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
        assert resolved(["experiment=e"], mine)["model"]["dim"] == dim


def test_so_is_a_directory_that_a_file_or_the_line_adds(tmp_path):
    """Whose groups only Hydra knows."""
    more = tree(tmp_path / "more", extra__a="x: 1\n")
    own = tree(
        tmp_path / "own",
        mine=f"defaults: [train, _self_]\nhydra: {{searchpath: ['file://{more}']}}\n",
    )
    for words in ([], ["+extra=a"], ["++extra=a"], ["+extra@model=a"]):
        agree([f"hydra.searchpath=['file://{more}']", *words])
    refused = "force-add of config groups is not supported"
    for words in (["+extra=a"], ["extra=a"]):
        with pytest.raises(ConfigError, match=refused):
            resolved(words, own, "mine")
    assert resolved(["+extra@model=a"], own, "mine")["model"]["x"] == 1
    assert resolved([], own, "mine")["model"] == resolved([])["model"]


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
        found = resolved(["experiment=e"], mine)
        assert (found["model"]["dim"], found["seen"]) == (dim, which)


def test_a_file_that_is_no_yaml_is_told_with_its_line(tmp_path):
    mine = tree(
        tmp_path,
        experiment__e=f"{GLOBAL}model: {{dim: 80\nattn: {{heads: 2}}\n",
        experiment__f="a: 1\na: 2\n",
    )
    with pytest.raises(ConfigError) as error:
        compose(["experiment=e"], mine)
    (fault,) = error.value.messages
    assert (
        fault
        == f"{mine}/experiment/e.yaml, line 3: is no YAML: expected ',' or '}}', but got ':'. Mend"
        " that line, or the one above it."
    )
    with pytest.raises(
        ConfigError, match=r"f.yaml, line 2: is no YAML: found duplicate key a\. Mend"
    ):
        compose(["experiment=f"], mine)


def test_a_file_that_is_no_text_is_named(tmp_path):
    mine = tree(tmp_path, experiment__e="")
    (tmp_path / "experiment" / "e.yaml").write_bytes("a: 1\nb: caf\u00e9\n".encode("latin-1"))
    with pytest.raises(ConfigError) as error:
        compose(["experiment=e"], mine)
    (fault,) = error.value.messages
    assert fault == (
        f"{mine}/experiment/e.yaml: cannot be read: 'utf-8' codec can't decode byte 0xe9 in"
        " position 11: invalid continuation byte. Mend it."
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
    assert compose(["norm=rms"]) == first  # a component is what is registered


def test_a_random_override_is_evaluated_at_each_composition():
    drawn = {str(resolved(["++x=shuffle([1,2,3,4,5,6,7,8])"])["x"]) for _ in range(5)}
    assert len(drawn) > 1


def test_a_file_of_ours_is_read_anew_when_it_has_changed(tmp_path, monkeypatch):
    ours = tmp_path / "conf"
    shutil.copytree(conf_dir(), ours)
    monkeypatch.setattr(hydra_session, "conf_dir", lambda: str(ours))
    assert compose(["debug=fast"])["seed"] == 0
    file = ours / "debug" / "fast.yaml"
    file.write_text(file.read_text() + "\nseed: 5\n")
    assert compose(["debug=fast"])["seed"] == 5


def test_links_that_lead_nowhere_or_round_are_passed_over(tmp_path):
    mine = tree(tmp_path, experiment__e="a: 1\n", experiment__f="")
    (tmp_path / "lost.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "round").symlink_to(tmp_path)
    assert compose(["model.dim=16", "attn.heads=2"], mine)["model"]["dim"] == 16
    (tmp_path / "experiment" / "f.yaml").write_bytes(b"a: \xe9\n")
    with pytest.raises(ConfigError, match=r"f\.yaml: cannot be read: .utf-8"):
        compose(["experiment=f"], mine)


def test_the_cache_of_choices_has_a_limit(monkeypatch):
    monkeypatch.setattr(hydra_session, "MAX_CACHED", 2)
    session = HydraSession()
    for name in ("rotary", "alibi", "none", "alibi"):
        assert (
            compose_resolved(session, parsed([f"position={name}"]))[0]["position"]["name"] == name
        )
    assert session.pickled.cache_info().currsize == 2


def test_hydra_is_left_as_it_was():
    """A study composes its runs while hydra.main is active."""
    with hydra.initialize_config_dir(conf_dir(), job_name="mine", version_base="1.2"):
        active, base = GlobalHydra.instance().hydra, hydra.version.getbase()
        assert compose(["seed=3", "position=alibi"])["seed"] == 3
        assert GlobalHydra.instance().hydra is active and hydra.version.getbase() == base
        assert JobRuntime.instance().get("name") == "mine"
        assert hydra.compose("train", ["norm=layer"]).norm.name == "layer"


def test_every_flag_of_hydra_is_read(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", "--hydra-help"])
    with pytest.raises(SystemExit):
        hydra.main(version_base="1.3", config_path=conf_dir(), config_name="train")(print)()
    help_text = capsys.readouterr().out
    flags = re.findall(r"^(--[a-z-]+)(?:,(-[a-z]+))? : ", help_text, flags=re.MULTILINE)
    assert len(flags) > 10
    values = {"--cfg": ["job"], "--info": ["all"], "--version": None}
    values |= dict.fromkeys(("--config-path", "--experimental-rerun"))  # refused
    for long, short in flags:
        for flag in filter(None, (long, short)):
            takes_value = long.startswith(("--config-", "--package"))
            value = values.get(long, ["x"] if takes_value else [])
            if value is not None:
                assert parse_flags(["seed=1", flag, *value]).overrides == ["seed=1"]
