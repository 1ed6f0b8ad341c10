"""A damaged or foreign config of a run is refused with its file and key, by every reader."""

import copy
import json
import math
import random
from types import SimpleNamespace

import pytest
import yaml

from tasks.cli.command import open_run
from tasks.run.init_from import start_from
from tasks.run.resume import resume_run
from xformer_kit import ConfigError, load
from xformer_kit.config import compose, config_yaml
from xformer_kit.config.saved.saved_run import read_run

VALUES = ["nonsense", "", 3, -1, 2.5, math.nan, True, None, [], [1], ["a"], [None], {}, {"a": 1}]
VALUES += [{"name": "x"}, {"name": None}, {"name": [1]}, {1: 2}, {None: 3}, {"name": {"a": 1}}]
TRIED = 30
LINE = ["task=seq2seq", "model=encoder_decoder", "data=tsv", "data.path=x.tsv", "lora.rank=2"]
LINE += ["model.decoder.variants.x.mask=sliding_window", "model.decoder.pattern=[base,x]"]
LINE += ["model.decoder.layout=[attn,cross,ffn]", "extra.token_shift={}", "metrics.accuracy={}"]
LINE += ["callbacks.norms={}"]
FOREIGN = {
    "of transformers": "architectures: [GPT2LMHeadModel]\nn_embd: 768\n",
    "of Lightning": "trainer: {max_steps: 3}\nmodel: {class_path: x.Y, init_args: {}}\n",
    "empty": "",
    "a list": "[1, 2]",
    "a number as a key": "model: {1: 2}",
}


def nodes(node, at=()):
    """Yields the keys that lead to each value of a config."""
    lists = enumerate(node) if isinstance(node, list) else ()
    for key, value in node.items() if isinstance(node, dict) else lists:
        yield (*at, key)
        yield from nodes(value, (*at, key))


def damaged(config, at, rng):
    """A copy in which the value at a place is taken out, replaced, or has one more key."""
    node = config = copy.deepcopy(config)
    for key in at[:-1]:
        node = node[key]
    kind = rng.choice(["out", "key", *VALUES])
    if kind == "out":
        del node[at[-1]]
    elif kind == "key" and isinstance(node[at[-1]], dict):
        node[at[-1]] |= {"foreign": 1}
    else:
        node[at[-1]] = kind
    return config


@pytest.fixture(scope="module")
def config():
    return compose(LINE, data=False)


def faults_of(run):
    try:
        read_run(run)
    except ConfigError as error:
        return error.messages
    return ()


@pytest.mark.extended
def test_only_a_config_error_comes_out_of_a_damaged_config(config, tmp_path):
    rng, places, refused = random.Random(0), list(nodes(config)), 0
    for at in [*rng.choices(places, k=TRIED), *((key,) for key in config)]:
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(damaged(config, at, rng)))
        faults = faults_of(tmp_path)
        refused += bool(faults)
        assert all(fault.startswith(f"{tmp_path}/config.yaml: ") for fault in faults)
    assert refused > TRIED / 2


def of_a_run(run):
    task = SimpleNamespace(model=None, build_part=None)
    return start_from(compose([f"init_from={run}"], data=False), task, None)


READERS = {
    "load": load,
    "describe, generate, evaluate, score, reproduce": lambda run: open_run(str(run), []),
    "init_from": of_a_run,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("text", ["lora: nonsense", "no task", *FOREIGN.values()])
def test_every_reader_names_the_file_and_the_key(read, text, config, tmp_path, capsys):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "tokenizer.json").write_text(json.dumps({"name": "byte"}))
    (tmp_path / "checkpoints/best.ckpt").touch()
    kept = {key: value for key, value in config.items() if text != "no task" or key != "task"}
    texts = {
        "lora: nonsense": config_yaml(config | {"lora": "nonsense"}),
        "no task": config_yaml(kept),
    }
    (tmp_path / "config.yaml").write_text(texts.get(text, text))
    with pytest.raises(ConfigError) as error:
        read(tmp_path)
    assert str(error.value).startswith(f"{tmp_path}/config.yaml: ")
    assert resume_run(tmp_path) == 2
    assert capsys.readouterr().err.startswith(f"{tmp_path}/config.yaml: ")
