"""Tab completion: what can follow an unfinished line, and the functions that bash and zsh call."""

import copy
import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.cli import COMMANDS, completion, main
from tests.tasks.command_lines import fault
from xformer_kit.attention import ATTENTIONS
from xformer_kit.config.line.completion_table import completion_table

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def table():
    return completion_table()


@pytest.fixture
def words(table, monkeypatch):
    monkeypatch.setattr(completion, "read_table", lambda files: copy.deepcopy(table))
    return lambda line: completion.completions(line, COMMANDS)


def test_commands_and_their_options(words):
    assert words("xformer sc") == ["schema ", "score "]
    assert words("xformer ") == [f"{name} " for name in COMMANDS]
    assert words("xformer reproduce --r") == ["--run "]
    assert words("xformer plot ") == ["mask ", "bias ", "attention ", "curves ", "norms "]
    assert words("xformer plot cu") == ["curves "]
    assert words("xformer nothing a") == words("xformer evaluate out") == []
    assert words("") == words("xformer") == []


def test_components_and_choices(words):
    assert words("xformer train attn=") == sorted(f"attn={name} " for name in ATTENTIONS)
    assert words("xformer train norm=rms -m attn.heads=2,4 ffn=glu,m") == [
        "ffn=glu,mlp ",
        "ffn=glu,moe ",
    ]
    assert words("xformer train study=norm_p") == ["study=norm_placement "]


def test_options_are_those_of_the_chosen_component(words):
    of = {name: {f"attn.{option}=" for option in ATTENTIONS.options(name)} for name in ATTENTIONS}
    assert set(words("xformer train attn.")) == of["multi_head"]
    assert set(words("xformer train attn=linear attn.")) == of["linear"]
    assert set(words("xformer train attn=gqa attn.")) == of["multi_head"]
    assert words("xformer train mask=sliding_window mask.w") == ["mask.window="]
    assert words("xformer train ffn.bias=") == ["ffn.bias=false ", "ffn.bias=true "]
    assert "attn.qk_norm=none " in words("xformer train attn.qk_norm=")


def test_settings_up_to_the_next_dot(words):
    assert words("xformer train mod") == ["model.", "model="]
    assert words("xformer train data.seq") == ["data.seq_len="]
    assert words("xformer train trainer.max_st") == ["trainer.max_steps="]
    assert words("xformer train extra.token_shift.t") == ["extra.token_shift.tokens="]


@pytest.mark.parametrize(
    "program",
    ["xformer train", "xformer describe", "python train.py", "python3 -m xformer_kit train"],
)
def test_every_program_that_takes_overrides(words, program):
    assert words(f"{program} attn.heads=4 posi") == ["position.", "position="]


def test_an_open_quote_and_unreadable_lines(words):
    assert words("xformer train \"name='a b'\" 'mask=cau") == ["mask=causal "]
    assert words("xformer train nothing=") == words("xformer train a.b.c=d") == []


def test_the_table_is_kept_for_one_state_of_the_code(table, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("xformer_kit.config.line.completion_table.completion_table", lambda: table)
    assert completion.read_table([]) == table
    (file,) = (tmp_path / "xformer_kit").iterdir()
    file.write_text("{}")
    assert completion.read_table([]) == {}
    file.write_text("cut")
    assert completion.read_table([]) == table
    monkeypatch.setattr(completion, "CHECKOUT", tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "train.yaml").touch()
    assert completion.read_table([]) == table
    assert len(list((tmp_path / "xformer_kit").iterdir())) == 1


def test_own_components_are_read_from_their_files():
    line = ["components=[a.py,'b c.py']", "attn=mine", "--components", "d.py", "components=e.py"]
    assert completion._component_files(line) == ["a.py", "b c.py", "e.py", "d.py"]


def test_choices_of_a_directory_of_ones_own(words, tmp_path):
    for name in ("experiment/mine.yaml", "study/a/my_study.yaml", "train.yaml", "other/x.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for flag in (f"--config-dir {tmp_path}", f"-cd {tmp_path}", f"--config-dir={tmp_path}"):
        assert words(f"xformer train {flag} experiment=m") == ["experiment=mine "]
        assert words(f"xformer train {flag} study=a/") == ["study=a/my_study "]
        assert words(f"xformer train {flag} oth") == ["other="]
    assert words("xformer train --config-dir nowhere experiment=m") == []


def test_other_shells_are_refused(capsys):
    for word in ("install=fish", "nothing=bash", ""):
        assert fault(capsys, "train", "-sc", word).startswith(
            "--shell-completion: takes install or uninstall of bash or zsh"
        )


def in_bash(line, environment, home):
    """The words that bash proposes for a line; `line` has bash's own word breaks, = and :."""
    breaks = shlex.shlex(line, posix=False, punctuation_chars="=:")
    breaks.whitespace_split = True
    tokens = [*breaks, *[""] * line.endswith(" ")]
    script = (
        f'eval "$({sys.executable} {ROOT / "train.py"} --shell-completion install=bash)"\n'
        f"COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}\n"
        f"COMP_WORDS=({shlex.join(tokens)}) COMP_CWORD={len(tokens) - 1}\n"
        "_xformer_complete; printf '%s|' \"${COMPREPLY[@]}\"; complete -p python xformer"
    )
    done = subprocess.run(
        ["bash", "-c", script], cwd=home, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("-F _xformer_complete") == 2
    return [word for word in done.stdout.partition("complete ")[0].split("|") if word]


@pytest.fixture
def environment(tmp_path):
    """An environment in which `python` and `xformer` are those of this test."""
    for name, command in (("python", ""), ("xformer", "-m tasks.cli")):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        program.chmod(0o755)
    return os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(tmp_path),
    }


@pytest.mark.extended
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_replaces_what_follows_the_last_equals_sign(environment, tmp_path, table):
    assert in_bash("xformer train attn=mul", environment, tmp_path) == ["multi_head "]
    names = [f"{name} " for name in sorted(table["choices"]["norm"])]
    assert in_bash("xformer train norm=", environment, tmp_path) == names
    assert in_bash("xformer train norm=layer mask.", environment, tmp_path) == []
    assert in_bash("xformer train data.seq", environment, tmp_path) == ["data.seq_len="]
    assert in_bash("python train.py ffn.bias=f", environment, ROOT) == ["false "]
    assert in_bash("python other.py ffn.bias=f", environment, ROOT) == []


def typed_in_zsh(lines, environment):
    """What zsh shows of lines that are typed one after the other, each until `shown` appears."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(ROOT)
        os.execvpe("zsh", ["zsh", "-f", "-i"], environment | {"PS1": "> ", "TERM": "dumb"})
    screen = ""
    for line, shown in lines:
        os.write(terminal, line.encode())
        seen = ""
        while shown not in seen and select.select([terminal], [], [], 60)[0]:
            seen += os.read(terminal, 4096).decode()
        screen += seen
        os.write(terminal, b"\x15")  # Ctrl-U takes the line away
    os.close(terminal)
    os.waitpid(process, 0)
    return screen


@pytest.mark.extended
@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_zsh_completes_the_last_word(environment):
    lines = [
        (f"eval \"$({sys.executable} train.py -sc install=zsh)\"; echo do''ne\n", "done"),
        ("xformer train attn=mul\t", "attn=multi_head "),
        ("xformer train data.seq\t", "data.seq_len="),
        ("xformer train ffn.bias=\t", "ffn.bias=false  ffn.bias=true"),
        ("xformer train data.path=READ\t", "data.path=README.md "),
        ("python train.py attn=gqa,mul\t", "attn=gqa,multi_head "),
        ("python REA\t", "python README.md "),
    ]
    screen = typed_in_zsh(lines, environment)
    assert all(shown in screen for _, shown in lines), screen


def test_the_script_is_removed_again(capsys):
    for shell, removed in (("bash", "complete -r "), ("zsh", "compdef -d ")):
        assert main(["train", "-sc", f"uninstall={shell}"]) == 0
        assert removed in capsys.readouterr().out
