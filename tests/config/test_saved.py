"""Files of a run that somebody else may have made: read within limits, and refused in one
sentence.
"""

import hashlib
import json
import os
import resource
import signal

import pytest
import torch
import yaml

from tests.messages import messages
from xformer_kit import ConfigError
from xformer_kit.config import check, compose, config_yaml, read_config
from xformer_kit.config.faults.size import memory_faults
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.config.saved.config_file import (
    MAX_VALUES,
    check_components,
    check_unchanged,
    parse_config,
)
from xformer_kit.model.build import build_model
from xformer_kit.plan import KINDS

NESTED = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (NESTED, f"must hold at most {MAX_VALUES:,} values with its aliases written out"),
        ("a: &a [1, *a]", "cannot be read as YAML"),
        ("a: " + "[" * 5000 + "]" * 5000, "cannot be read as YAML"),
        ("a: 2020-13-45", "cannot be read as YAML"),
        ("a: !!python/object/apply:os.system [ls]", "cannot be read as YAML"),
        ("a: {b: 1}\nc: {b: 2, b: 3}", "the key b is given more than once in"),
        ("[1, 2]", "must hold a mapping; got list"),
        ("a: " + "1" * 2**17, "must have at most 131,072 bytes"),
        (b"a: \xff", "cannot be read: 'utf-8' codec"),
    ],
    ids=["aliases", "itself", "deep", "date", "tag", "twice", "list", "large", "no text"],
)
def test_a_config_file_that_no_run_wrote_is_refused(tmp_path, text, answer):
    (tmp_path / "config.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as error:
        read_config(tmp_path)
    [sentence] = error.value.messages
    assert sentence.startswith(f"{tmp_path / 'config.yaml'}: ") and answer in sentence


def test_aliases_that_a_run_saved_are_read():
    """PyYAML writes a list that two keys share as an alias."""
    shared = [0.9, 0.95]
    config = compose([]) | {"one": shared, "two": shared}
    text = config_yaml(config)
    assert "*id001" in text
    assert parse_config(text, "x")["two"] == shared


def changed(kind: str, name: str):
    """(what, config with one whole number of a component replaced) for two sizes that no machine
    holds.
    """
    try:
        config = compose(
            ["model.dim=16", "model.layers=2", "attn.heads=2", f"{kind}={name}"], data=False
        )
    except ConfigError:  # it needs companions; its options are checked in the same way
        return
    options = {kind: KINDS[kind].options(name)}
    if name == "rms":  # with one of all components, the model's own
        options["model"] = SETTINGS.options("model")
    for node, known in options.items():
        for option in (option for option in known if "int" in str(known[option].type)):
            for value in (10**6, 10**18):
                yield (
                    f"{kind}={name} {node}.{option}={value}",
                    config | {node: {**config[node], option: value}},
                )


def refuse_or_build(config) -> None:
    """What train.py does before it begins a run, and what describe does with a run's config."""
    if not check(config, data=False) and not messages(memory_faults(config)):
        with torch.device("meta"):
            build_model(config, 100)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.extended
def test_no_number_in_a_config_takes_all_memory_or_for_ever(kind):
    """Each option of each component in turn is refused, or built without its memory."""
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        signal.alarm(300)
        used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")  # noqa: SIM115
        resource.setrlimit(resource.RLIMIT_AS, (used + 4 * 2**30,) * 2)
        what = ""
        try:
            for name in KINDS[kind]:
                for what, config in changed(kind, name):
                    os.write(writer, f"{what}\n".encode())
                    refuse_or_build(config)
        except BaseException as error:
            os.write(writer, f"{what} raised {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with open(reader) as cases:
        *_, last = cases
    assert os.waitpid(pid, 0)[1] == 0, last


@pytest.mark.parametrize(
    "where", ["model.layers", "model.decoder.layers", "extra.future_tokens.count"]
)
def test_more_blocks_than_any_model_has_are_refused_before_one_is_made(where):
    with pytest.raises(ConfigError) as error:
        compose([f"{where}=100000000"])
    assert any(f.startswith(f"{where}: must be at most 10,000 ") for f in error.value.messages)


def test_what_has_changed_in_a_config_since_its_checkpoint_is_shown(tmp_path):
    before = compose(["optim.lr=1e-3"])
    saved = config_yaml(before)
    moved = before | {
        "logger": {"name": "none"},
        "trainer": {**before["trainer"], "devices": 2, "val_every": 7},
    }
    moved["data"] = before["data"] | {"num_workers": 2}
    check_unchanged(tmp_path, moved, saved)
    edited = yaml.safe_load(config_yaml(before))
    edited["optim"]["lr"], edited["model"]["dim"] = 2e-3, 64
    with pytest.raises(ConfigError) as error:
        check_unchanged(tmp_path, edited, saved)
    assert (
        str(error.value)
        == f"{tmp_path}/config.yaml: must be as it was when the run was trained; model.dim was 128"
        " and is 64; optim.lr was 0.001 and is 0.002. Undo the change, or start a new run."
    )
    with pytest.raises(ConfigError, match=r"trained; model.dim was 128 and is 64. Undo"):
        check_unchanged(tmp_path, edited, saved, only=("model",))


def test_components_of_its_own_must_be_given_as_they_were(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    other.mkdir()
    check_components(run, [])
    file = other / "mine.py"
    file.write_text("x = 1\n")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (run / "components.json").write_text(json.dumps({"mine.py": digest}))
    check_components(run, [str(file)])
    with pytest.raises(ConfigError) as error:
        check_components(run, [])
    assert (
        str(error.value)
        == f"{run}: was begun with components of its own; got no file called 'mine.py' (sha256"
        f" {digest[:12]}). Give the file that you trust under that name: --components FILE."
    )
    file.write_text("x = 2\n")
    with pytest.raises(
        ConfigError,
        match=f"mine.py must be as it was when the run began \\(sha256 {digest[:12]}\\)",
    ):
        check_components(run, [str(file)])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "must be a JSON object; got list"),
        ('{"../x.py": "%s"}' % ("0" * 64), "must map the names of files to their sha256"),
        ('{"x.py": 1}', "must map the names of files to their sha256"),
        ('{"\\u001b[2J.py": "%s"}' % ("0" * 64), "must map the names of files to their sha256"),
        ("[" * 9999, "cannot be read as JSON"),
    ],
    ids=["cut", "list", "a path", "no digest", "an escape code", "deep"],
)
def test_a_components_file_that_no_run_wrote_is_refused(tmp_path, text, rule):
    (tmp_path / "components.json").write_text(text)
    with pytest.raises(ConfigError, match=f"components.json: {rule}"):
        check_components(tmp_path, [])
