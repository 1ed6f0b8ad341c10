"""experiment=FILE.yaml and study=FILE.yaml."""

import pytest

from xformer_kit import compose
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
        (b"a: \xff\n", "mine.yaml: must be utf-8 text."),
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
