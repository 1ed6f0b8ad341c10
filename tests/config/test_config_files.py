"""experiment=FILE.yaml and study=FILE.yaml."""

from pathlib import Path

import pytest

from xformer_kit import compose
from xformer_kit.config import preflight
from xformer_kit.registry import ConfigError


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    return tmp_path


def test_an_experiment_in_a_file_differs_from_the_default_in_its_lines(here):
    file = here / "mine" / "wide.yaml"
    file.write_text("defaults:\n  - override /position: alibi\nattn: {heads: 2}\n")
    by_hand = compose(["position=alibi", "attn.heads=2"])
    for path in ("mine/wide.yaml", f"{file}", "../" + here.name + "/mine/wide.yaml"):
        assert compose([f"experiment={path}"]) == by_hand


def test_an_option_of_the_line_is_set_after_the_file(here):
    (here / "wide.yaml").write_text("# @package _global_\nattn: {heads: 2}\n")
    config = compose(["experiment=wide.yaml", "attn.heads=8"])
    assert config["attn"]["heads"] == 8


def test_a_file_that_has_changed_is_read_again(here):
    file = here / "wide.yaml"
    for heads in (2, 8):
        file.write_text(f"attn: {{heads: {heads}}}\n")
        assert compose(["experiment=wide.yaml"])["attn"]["heads"] == heads


def test_a_file_is_combined_with_experiments_of_the_package(here):
    (here / "wide.yaml").write_text("attn: {heads: 2}\n")
    config = compose(["experiment=[copy,wide.yaml]"])
    assert (config["data"]["name"], config["attn"]["heads"]) == ("copy", 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "experiment: there is no such file; got mine.yaml."),
        ("a: [1\nb", "mine.yaml, line 2: is no YAML: "),
        ("- 1\n", "mine.yaml: must be a mapping of config keys."),
        ("", "mine.yaml: must be a mapping of config keys."),
        ("attn: {haeds: 2}\n", "attn.haeds: attn 'multi_head' has no option 'haeds'."),
        (b"a: \xff\n", "mine.yaml: cannot be read: 'utf-8' codec can't decode byte 0xff"),
        (
            "hydra: {callbacks: {x: {_target_: os.system}}}\n",
            "mine.yaml: hydra.callbacks.x._target_: names code that Hydra would run, and a config",
        ),
        (
            "hydra: {launcher: {_target_: x}}\n",
            "mine.yaml: hydra.launcher._target_: names code that Hydra would run, and a config",
        ),
        ("attn: {}\nattn: {}\n", "mine.yaml, line 2: is no YAML: found duplicate key attn."),
        ("a: &x [*x]\n", "mine.yaml: is nested too deeply, or has an anchor (&) with an alias (*)"),
        ("study: {seeds: 1}\n", "mine.yaml: is a study, and no experiment. Try study=mine.yaml."),
        ("defaults: 3\n", "experiment: cannot be composed: Invalid defaults list in"),
        (
            "defaults: [mine]\n",
            "config: the lists of defaults of the chosen files contain each other",
        ),
    ],
)
def test_a_bad_file_is_one_sentence(here, content, message):
    if content is not None:
        data = content if isinstance(content, bytes) else content.encode()
        (here / "mine.yaml").write_bytes(data)
    with pytest.raises(ConfigError) as error:
        compose(["experiment=mine.yaml"])
    assert [str(fault)[: len(message)] for fault in error.value.faults] == [message]


def test_the_ending_is_that_of_hydra(here):
    (here / "mine.yml").write_text("attn: {heads: 2}\n")
    with pytest.raises(ConfigError, match=r"^experiment: the name .* end in \.yaml; got mine\.yml"):
        compose(["experiment=mine.yml"])


def test_the_file_of_a_study_has_the_key_study(here):
    (here / "mine.yaml").write_text("factors: {attn.heads: [2, 4]}\n")
    with pytest.raises(ConfigError, match=r"^mine.yaml: has no key study\. Put "):
        compose(["study=mine.yaml"])


@pytest.mark.extended
@pytest.mark.parametrize("entry", ["attn: linear", "/attn: linear", "override attn: linear"])
def test_the_defaults_of_a_file_override_those_of_the_default_run(here, entry):
    (here / "mine.yaml").write_text(f"defaults: [{entry}]\n")
    with pytest.raises(ConfigError, match=r"got .*\. Write - override /attn: linear\.$"):
        compose(["experiment=mine.yaml"])
    (here / "mine.yaml").write_text("defaults:\n - override /attn: linear\n")
    assert compose(["experiment=mine.yaml"]) == compose(["attn=linear"])


@pytest.mark.parametrize("entry", ["/experiment: copy", "override /experiment: copy"])
def test_an_experiment_is_based_on_another_by_its_path(here, entry):
    (here / "mine.yaml").write_text(f"defaults: [{entry}]\nattn: {{heads: 2}}\n")
    with pytest.raises(ConfigError, match=r"Base the file on it with - /experiment/copy\.$"):
        compose(["experiment=mine.yaml"])
    (here / "mine.yaml").write_text("defaults:\n - /experiment/copy\nattn: {heads: 2}\n")
    assert compose(["experiment=mine.yaml"]) == compose(["experiment=copy", "attn.heads=2"])


def test_files_that_contain_each_other_are_one_sentence(here):
    for name, other in ("ab", "ba"):
        (here / f"{name}.yaml").write_text(f"defaults: [/experiment/{other}]\n")
    with pytest.raises(ConfigError, match=r"^config: the lists of defaults .* contain each other"):
        compose(["experiment=[a.yaml,b.yaml]"])


@pytest.mark.extended
@pytest.mark.parametrize(
    ("key", "choice"), [("attn", "linear"), ("norm", "rmsnorm"), ("position", "rope")]
)
def test_a_component_that_a_file_only_names_has_its_options(here, key, choice):
    (here / "mine.yaml").write_text(f"{key}: {choice}\n")
    own = {"rmsnorm": "rms", "rope": "rotary"}.get(choice, choice)
    assert compose(["experiment=mine.yaml"]) == compose([f"{key}={own}"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "attn: {heads: 2}\n",
            "does not begin with `# @package _global_`, so that its keys would be under",
        ),
        (
            "# yaml-language-server: $schema=a.json\n# @package _global_\nseed: 1\n",
            "does not begin",
        ),
        ("study: {seeds: 1}\n", "is a study, and no experiment"),
    ],
)
def test_a_file_of_the_users_directory_is_examined_too(here, content, message):
    (here / "mine" / "experiment").mkdir()
    file = here / "mine" / "experiment" / "first.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError) as error:
        preflight(["--config-dir", "mine", "experiment=first"])
    [sentence] = error.value.messages
    assert sentence.startswith(f"{Path('mine', 'experiment', 'first.yaml')}: {message}")
    file.write_text("# @package _global_\nattn: {heads: 2}\n")
    assert len(preflight(["--config-dir", "mine", "experiment=first"]).configs) == 1


def test_a_study_may_choose_an_experiment(here):
    """As the studies of the package do, whose files can be named by their paths."""
    text = "study: {factors: {norm: [layer]}, baseline: {norm: rms}}\n"
    path = here / "mine.yaml"
    path.write_text(f"defaults:\n  - override /experiment: copy\n{text}")
    assert preflight(["study=mine.yaml"]).study["factors"] == {"norm": ["layer"]}
    path.write_text(f"defaults:\n  - /experiment: copy\n{text}")
    with pytest.raises(ConfigError, match=r"Write - override /experiment: copy\.$"):
        preflight(["study=mine.yaml"])
