"""Commands that a run with components of its own proposes name their files, if they were given."""

import json
import re
import shlex
import signal
from types import SimpleNamespace

import pytest

from tasks import cli
from tasks.logging import sweep_table
from tasks.process.exit_codes import Ended
from tasks.process.job import Job
from tasks.run import train, worker
from tasks.run.new_directory import LOCK
from tasks.run.resume import resume_run
from tasks.run.start import start_run
from tests.user_components import forget_user_components
from xformer_kit import ConfigError, load
from xformer_kit.config import preflight

OWN = '''
from xformer_kit.ffn import FFNS, MLP

@FFNS.register("mine")
class Mine(MLP):
    """A network of one's own."""
'''
NAME = "my components.py"


@pytest.fixture
def component_files(tmp_path, monkeypatch):
    """The current directory's file of components."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).write_text(OWN)
    yield (str(tmp_path / NAME),)
    forget_user_components()


@pytest.fixture
def trained(component_files, config, tmp_path, capsys):
    """(directory, stdout) of a run with a component of its own."""
    own = config(f"components=['{NAME}']", "ffn=mine", "trainer.max_steps=2")
    assert start_run(own, tmp_path / "run", component_files) == 0
    return tmp_path / "run", capsys.readouterr().out


def proposed_commands(text, program):
    """The commands of a program that a text proposes, as words."""
    return [shlex.split(line) for line in re.findall(rf"{program} .*(?=$)", text, re.MULTILINE)]


def test_commands_proposed_after_a_run_work(trained, capsys):
    _, out = trained
    found = proposed_commands(out, "xformer")
    assert [words[1] for words in found] == ["generate", "evaluate", "plot"]
    for words in found:
        assert words[-2:] == ["--components", NAME]
        assert cli.main(words[1:]) == 0


def test_the_command_proposed_for_a_stopped_run_resumes_it(
    component_files, config, tmp_path, monkeypatch, capsys
):
    from tasks.callbacks.recorder import Recorder

    end = Recorder.on_train_batch_end

    def send(self, trainer, task):
        if task.step == 2:
            signal.raise_signal(signal.SIGTERM)
        return end(self, trainer, task)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "on_train_batch_end", send)
        own = config(f"components=['{NAME}']", "ffn=mine", "trainer.max_steps=4")
        assert start_run(own, tmp_path / "run", component_files) == 143
    [words] = proposed_commands(capsys.readouterr().err, "xformer train")
    line = preflight(words[2:])
    assert line.components == (NAME,)
    assert "components" not in json.loads((tmp_path / "run" / "ended.json").read_text())["text"]
    assert resume_run(tmp_path / line.resume, line.components) == 0


def test_all_other_messages_name_the_components(
    component_files, config, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(train.ranks, "lost_connection", lambda error: True)
    own, folder = config(), tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(json.dumps(own))
    (folder / LOCK).touch()
    job = Job(folder, component_files)
    train.report_end(Ended("The disk is full. Make room."), job)
    train.report_crash(RuntimeError("closed"), job, SimpleNamespace(saved_step=lambda: 3))
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "last.ckpt").touch()
    assert start_run(own, folder, component_files) == 2
    message = capsys.readouterr().err
    rows = [{"job": "3", "status": "stopped"}]
    for text in (
        *message.splitlines(),
        *sweep_table.unfinished_messages(rows, tmp_path, component_files),
    ):
        assert f"components=['{NAME}']" in text and "resume=" in text, text


def test_the_message_on_a_killed_rank_names_the_components(
    component_files, config, tmp_path, monkeypatch, capsys
):
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    def fail(*words):
        raise ChildFailedError("worker", {1: SimpleNamespace(exitcode=-9, timestamp=0)})

    monkeypatch.setattr(
        ChildFailedError,
        "__init__",
        lambda self, name, failures: setattr(self, "failures", failures),
    )
    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", lambda *_: fail)
    monkeypatch.setattr(worker, "_rank_timeout", lambda run_dir: 0)
    monkeypatch.setattr("logging.disable", lambda level: None)
    assert worker.run_agent(Job(tmp_path / "run", component_files), 2) == 1
    message = capsys.readouterr().err
    assert "Rank 1 was killed by SIGKILL" in message
    assert shlex.split(message.partition("Go on with: ")[2])[2] == f"components=['{NAME}']"


def test_commands_on_a_run_without_a_checkpoint_propose_only_the_given_components(trained, capsys):
    folder, _ = trained
    for file in (folder / "checkpoints").iterdir():
        file.unlink()
    for command, more in (("generate", ["--prompt", "a"]), ("evaluate", [])):
        assert cli.main([command, str(folder), *more, "--components", NAME]) == 2
        [words] = proposed_commands(capsys.readouterr().err, "xformer train")
        assert words[2:] == [f"components=['{NAME}']", f"resume={folder}"]
    with pytest.raises(ConfigError, match=re.escape(f"components=['{NAME}']")):
        load(folder, [NAME])
    (folder / "summary.json").unlink()
    assert cli.main(["reproduce", str(folder), "--components", NAME]) == 2
    assert f"components=['{NAME}']" in capsys.readouterr().err
    (folder / "components.json").write_text(
        json.dumps({"evil.py": "0" * 64})
    )  # as of a run from elsewhere
    for command, more in (("generate", ["--prompt", "a"]), ("evaluate", []), ("reproduce", [])):
        assert cli.main([command, str(folder), *more]) == 2
        message = capsys.readouterr().err
        assert message.endswith(
            "Give the file that you trust under that name: --components FILE.\n"
        )
