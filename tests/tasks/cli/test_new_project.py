"""`xformer new`: the project that it writes, and names that it refuses."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.tasks.command_lines import fault, output
from tests.user_components import forget_user_components
from xformer_kit.config import preflight
from xformer_kit.laws import LAWS, tiny_config
from xformer_kit.registry import ConfigError


@pytest.fixture(autouse=True)
def _components():
    """Removes the component of a project, which `xformer new` registers for the schema."""
    yield
    forget_user_components()


@pytest.fixture
def project(tmp_path, monkeypatch, capsys):
    """A new project, which is the current directory."""
    monkeypatch.chdir(tmp_path)
    code, out, err = output(capsys, "new", "my-project_2")
    assert (code, err) == (0, "")
    assert out.endswith("\n  $ cd my-project_2 && ./train.sh\n")
    monkeypatch.chdir(tmp_path / "my-project_2")
    forget_user_components()
    return tmp_path / "my-project_2"


def words_of_script(*words):
    """The words that train.sh passes to xformer."""
    script = Path("train.sh").read_text().replace("exec xformer", "printf '%s\\n'")
    done = subprocess.run(
        ["sh", "-c", script, "./train.sh", *words], capture_output=True, text=True
    )
    assert done.stdout.startswith("train\n"), done.stderr
    return done.stdout.splitlines()[1:]


def test_the_files_have_the_name_of_the_project(project):
    files = [path for path in project.rglob("*") if path.is_file()]
    assert {str(path.relative_to(project)) for path in files} == {
        "AGENTS.md",
        "README.md",
        "components.py",
        "conf/experiment/first.yaml",
        "conf/schema.json",
        "conf/study/positions.yaml",
        "test_components.py",
        "train.sh",
    }
    assert not any("PROJECT" in path.read_text() for path in files)
    assert yaml.safe_load(Path("conf/experiment/first.yaml").read_text())["name"] == "my-project_2"
    assert (project / "train.sh").stat().st_mode & 0o111


def test_its_files_name_the_schema_by_which_they_are_valid(project):
    """After the line of Hydra, which it reads only before other comments."""
    for file in project.glob("conf/*/*.yaml"):
        package, language_server, *_ = (text := file.read_text()).splitlines()
        assert package == "# @package _global_"
        path = language_server.removeprefix("# yaml-language-server: $schema=")
        validator = Draft202012Validator(json.loads((file.parent / path).read_text()))
        assert validator.is_valid(config := yaml.safe_load(text))
        assert validator.is_valid(config | {"position": {"name": "slopes", "start": 0.2}})
        assert not validator.is_valid(config | {"position": {"name": "slopes", "strat": 0.2}})


def test_its_runs_and_its_study_are_valid_and_its_component_keeps_a_law(project):
    line = preflight(words_of_script())
    assert (len(line.configs), line.components) == (1, ("./components.py",))
    assert preflight(words_of_script("experiment=first", "attn.heads=8")).argv[-1] == (
        "++attn.heads=8"
    )
    study = preflight(words_of_script("experiment=first", "study=positions"))
    assert study.study["factors"] == {"position": ["slopes", "rotary"]}
    LAWS["causality"](tiny_config(position="slopes"))


def test_the_script_has_its_experiment_unless_another_run_is_given(project):
    for words in ([], ["attn.heads=8"], ["study=positions"], ["-m", "attn.heads=2,4"]):
        assert words_of_script(*words)[-1 - len(words) :] == ["experiment=first", *words]
    for words in (["experiment=mine", "attn.heads=8"], ["resume=outputs/run"]):
        passed = words_of_script(*words)
        assert passed[-len(words) :] == words and "experiment=first" not in passed


@pytest.mark.parametrize("name", ["my project", "it's"])
def test_the_script_can_be_called_from_any_directory(project, monkeypatch, name):
    other = project.rename(project.with_name(name))
    monkeypatch.chdir(other.parent)
    script = (other / "train.sh").read_text().replace("exec xformer", "printf '%s\\n'")
    command = ["sh", "-c", script, f"{name}/train.sh"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=other.parent)
    line = preflight(done.stdout.splitlines()[1:])
    assert line.components == (f"{name}/components.py",)


def test_without_the_script_messages_name_what_its_files_need(project):
    for words, answer in (
        (["experiment=first"], "own is in --config-dir DIR, or experiment=FILE.yaml."),
        (["study=positions"], "own is in --config-dir DIR, or study=FILE.yaml."),
        (["position=slopes"], "own needs its file: components=[my_position.py]."),
        (
            ["--config-dir", "conf", "experiment=first"],
            "own needs its file: components=[my_position.py].",
        ),
    ):
        with pytest.raises(ConfigError) as error:
            preflight(words)
        assert str(error.value).endswith(answer)


@pytest.mark.parametrize("name", ["", "a b", "..", "x/1e5", "/", "-a", ".a", "ü", "a\n"])
def test_a_bad_name_is_refused(tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    message = fault(capsys, "new", "--", name)
    assert "must be a name of letters, digits, _ and -" in message
    assert list(tmp_path.iterdir()) == []


def test_the_last_part_of_a_path_is_the_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = output(capsys, "new", "some dir/my_project")
    assert (code, err) == (0, "")
    assert out.endswith("\n  $ cd 'some dir/my_project' && ./train.sh\n")
    config = Path("some dir/my_project/conf/experiment/first.yaml")
    assert yaml.safe_load(config.read_text())["name"] == "my_project"


def test_an_existing_directory_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "file").touch()
    for name in ("here", "file"):
        assert fault(capsys, "new", name) == (
            f"project: cannot be made (File exists); got {name}. Take another name."
        )
    monkeypatch.setattr(Path, "mkdir", mock.Mock(side_effect=OSError(28, "No space")))
    assert fault(capsys, "new", "other").startswith(
        "project: cannot be made (No space); got other."
    )
    assert list((tmp_path / "here").iterdir()) == []


def test_options_of_other_commands_are_refused(capsys):
    assert "no option is called --components" in fault(capsys, "new", "a", "--components", "b.py")


@pytest.mark.extended
def test_the_test_of_the_project_passes(project, monkeypatch, capsys):
    """Its command is run in this process."""

    def run(command, **_):
        assert command[:3] == [sys.executable, "-m", "xformer_kit"]
        code, out, err = output(capsys, *command[3:])
        return subprocess.CompletedProcess(command, code, out, err)

    module = runpy.run_path(str(project / "test_components.py"))
    monkeypatch.setattr(subprocess, "run", run)
    module["test_the_components_keep_the_laws"]()
    failed = subprocess.CompletedProcess([], 1, "", "a law is broken")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(AssertionError, match="a law is broken"):
        module["test_the_components_keep_the_laws"]()
