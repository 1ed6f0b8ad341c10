"""components: [FILE] in the file of an experiment or a study is relative to that file."""

import pytest

from tests.user_components import forget_user_components
from xformer_kit import compose
from xformer_kit.config import preflight
from xformer_kit.registry import ConfigError

OWN = '''
from xformer_kit.ffn import FFNS, MLP

@FFNS.register("{name}")
class Mine(MLP):
    """A network of one's own."""
'''


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory with a file of components and an experiment; another is the current one."""
    (tmp_path / "project" / "parts").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    (tmp_path / "project" / "parts" / "mine.py").write_text(OWN.format(name="mine"))
    experiment = "components: [parts/mine.py]\nffn: mine\n"
    (tmp_path / "project" / "mine.yaml").write_text(experiment)
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "project"
    forget_user_components()


ENTRIES = ("ffn: mine", "defaults: [override /ffn: mine]")
FILES = ("[parts/mine.py]", "parts/mine.py", "[{}/parts/mine.py]")
# Each directory with each form of the files and each entry.
PLACES = [
    (directory, files, ENTRIES[(i + j) % 2])
    for i, directory in enumerate((".", "parts", "../here"))
    for j, files in enumerate(FILES)
]


@pytest.mark.extended
@pytest.mark.parametrize(("directory", "files", "entry"), PLACES)
def test_a_file_of_components_is_found_from_every_directory(
    project, monkeypatch, directory, files, entry
):
    monkeypatch.chdir(project / directory)
    (project / "mine.yaml").write_text(f"components: {files.format(project)}\n{entry}\n")
    assert compose([f"experiment={project}/mine.yaml"])["ffn"]["name"] == "mine"


def test_it_is_the_same_line_with_the_path_from_here(project):
    line = preflight(["experiment=../project/mine.yaml"])
    assert line.components == ("../project/parts/mine.py",)
    assert line.configs == preflight([*line.argv]).configs
    assert line.argv[0] == "++components=[../project/parts/mine.py]"


def test_the_files_of_the_line_are_relative_to_the_working_directory_and_replace_them(project):
    line = ["experiment=../project/mine.yaml", "components=[mine.py]"]
    with pytest.raises(ConfigError, match=r"^components: cannot read mine\.py"):
        compose(line)
    (project.parent / "here" / "mine.py").write_text(OWN.format(name="mine"))
    assert preflight(line).components == ("mine.py",)


def test_a_missing_file_is_named_with_its_directory(project):
    (project / "parts" / "mine.py").unlink()
    with pytest.raises(
        ConfigError, match=r"^components: cannot read \.\./project/parts/mine\.py: No such file"
    ):
        compose(["experiment=../project/mine.yaml"])


def test_an_experiment_of_a_directory_brings_its_own(project):
    conf = project / "conf" / "experiment"
    conf.mkdir(parents=True)
    package = "# @package _global_\n"
    (conf / "first.yaml").write_text(f"{package}components: [../../parts/mine.py]\nffn: mine\n")
    (conf / "second.yaml").write_text(f"{package}defaults: [first]\nattn: {{heads: 2}}\n")
    line = preflight(["--config-dir", "../project/conf", "experiment=first"])
    assert line.configs[0]["ffn"]["name"] == "mine"
    with pytest.raises(ConfigError, match=r"^components: are named by the line, or by the file of"):
        preflight(["--config-dir", "../project/conf", "experiment=second"])


def test_a_sweep_imports_those_of_all_its_files(project):
    (project / "parts" / "more.py").write_text(OWN.format(name="more"))
    (project / "more.yaml").write_text("components: [parts/more.py]\nffn: more\n")
    line = preflight(["-m", "experiment=../project/mine.yaml,../project/more.yaml"])
    assert [config["ffn"]["name"] for config in line.configs] == ["mine", "more"]
    assert line.components == ("../project/parts/mine.py", "../project/parts/more.py")


def test_no_other_file_brings_components(project):
    (project / "conf" / "debug").mkdir(parents=True)
    other = project / "conf" / "debug" / "other.yaml"
    other.write_text("# @package _global_\ncomponents: [../../parts/mine.py]\n")
    with pytest.raises(ConfigError, match=r"^components: are named by the line, or by the file of"):
        preflight(["--config-dir", "../project/conf", "debug=other"])
