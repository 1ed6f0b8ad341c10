"""The JSON Schema of a config: what it accepts, and the paths of what it does not."""

import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from omegaconf import OmegaConf

from tasks.cli.schema import schema_text
from tests.tasks.command_lines import fault, output
from tests.user_components import forget_user_components
from xformer_kit import compose
from xformer_kit.config import GROUPS, MAPPING_GROUPS, NESTED_GROUPS
from xformer_kit.json_schema import config_schema
from xformer_kit.registry import REQUIRED
from xformer_kit.study.design import DESIGNS

CONF = Path(__file__).parents[1] / "conf"
OWN = """from torch import nn
from xformer_kit.norm import NORMS

@NORMS.register("mine")
class Mine(nn.Module):
    def __init__(self, dim: int, *, power: int = 2):  # of the length
        super().__init__()
"""


@pytest.fixture(scope="module")
def schema():
    return config_schema()


@pytest.fixture(scope="module")
def paths(schema):
    """paths(config, of="") are those of the faults; of: a kind, whose node the config is."""
    Draft202012Validator.check_schema(schema)

    def paths(config, of=""):
        part = {"$ref": f"#/$defs/{of}", "$defs": schema["$defs"]} if of else schema
        return {error.json_path.strip("$."): error for error in errors(part, config)}

    return paths


def errors(schema, config):
    return Draft202012Validator(schema).iter_errors(config)


def test_every_file_of_conf_is_valid(paths):
    """As PyYAML reads it, where 1e-3 is a text, and as OmegaConf does."""
    wrong = {}
    for file in sorted(CONF.rglob("*.yaml")):
        text = file.read_text(encoding="utf-8")
        for config in (yaml.safe_load(text), OmegaConf.to_container(OmegaConf.create(text))):
            if file.parent.name == "trainer":  # of the package trainer
                config = {"trainer": {k: v for k, v in config.items() if k != "defaults"}}
            if file.parent.name != "sweep" and (found := paths(config)):  # of W&B
                wrong[file.name] = found
    assert wrong == {}


@pytest.mark.parametrize("words", [[], ["preset=deepseek_v3"], ["task=seq2seq", "data=scan"]])
def test_a_composed_config_is_valid(paths, words):
    assert paths(compose(words, data=False)) == {}


def components():
    """(kind, name, options with their defaults) of every component."""
    for registry in (*(GROUPS | NESTED_GROUPS | MAPPING_GROUPS).values(), DESIGNS):
        for name in registry:
            yield registry, name, {k: v for k, v in registry.defaults(name).items() if k != "name"}


def node(registry, name, options):
    """(config, kind or "" if the config is a whole one)."""
    if registry.several:
        return {registry.group: {name: options}}, ""
    return {"name": name, **options}, registry.group


def test_the_defaults_of_every_component_are_valid(paths):
    wrong = [(one[1], found) for one in components() if (found := paths(*node(*one)))]
    assert wrong == []


@pytest.mark.parametrize("later", ["${model.dim}", "${oc.env:HOME}/x", REQUIRED])
def test_every_option_may_be_an_interpolation_or_set_later(paths, later):
    wrong = []
    for registry, name, options in components():
        if found := paths(*node(registry, name, dict.fromkeys(options, later))):
            wrong.append((name, found))
    assert wrong == []
    for config in ({"model": later}, {"attn": later}, {"attn": {"name": later, "heads": 2}}):
        assert paths(config) == {}


@pytest.mark.every_case
@pytest.mark.parametrize(
    "text",
    [
        "attn: mqa",
        "attn: {heads: 4}",
        "attn: {name: linear, feature_map: elu}",
        "attn: {qk_norm: true, score: entmax}",
        "model: {layers: 1_024, train_loops: [1, 3], logit_scale: learned}",
        "optim: {lr: 1e-3, betas: [0.9, 1.5e-2]}",
        "logger: {csv: {}, tensorboard: null}",
        "extra: {smear: null}",
        "init_from: outputs/decoder/1",
        "model: {decoder: {pattern: [a], variants: {a: {mask: {name: chunked, chunk: 4}}}}}",
        "mask: {name: all_of, of: [causal, {name: sliding_window, window: 4}]}",
        "study: {design: {name: search, trials: 4}, budget: {match: params}, also: [params]}",
        "defaults: [gemma2, {override /attn: my_file}, {override /experiment: copy}]",
    ],
)
def test_a_file_has_names_options_or_both(paths, text):
    assert paths(yaml.safe_load(text)) == {}


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("text", "path", "word"),
    [
        ("atn: {heads: 4}", "", "'atn'"),
        ("attn: {hedas: 4}", "attn", "'hedas'"),
        ("attn: {name: latent, kv_heads: 4}", "attn", "'kv_heads'"),
        ("attn: {heads: four}", "attn.heads", "'four'"),
        ("attn: {heads: '4'}", "attn.heads", "'4'"),
        ("attn: {heads: true}", "attn.heads", "True"),
        ("attn: {heads: 0.5}", "attn.heads", "0.5"),
        ("attn: latnt", "attn", "'latnt'"),
        ("attn: {name: latnt, heads: 4}", "attn.name", "'latnt'"),
        ("attn: {name: multi_head, score: {name: entmax, alhpa: 2}}", "attn.score", "'alhpa'"),
        ("mask: {name: all_of, of: [causal, {name: sliding_window, widnow: 4}]}", "mask.of[1]", ""),
        ("ffn: {activation: geluu}", "ffn.activation", "'geluu'"),
        ("optim: {betas: [0.9]}", "optim.betas", "[0.9]"),
        ("model: {dim: null}", "model.dim", "None"),
        ("model: {decoder: {mask: {windw: 4}}}", "model.decoder.mask", "'windw'"),
        ("model: {decoder: {variants: {a: {ffn: glue}}}}", "model.decoder.variants.a.ffn", "glue"),
        ("trainer: {max_stesp: 4}", "trainer", "'max_stesp'"),
        ("extra: {smaer: {}}", "extra", "'smaer'"),
        ("metrics: {top_k_accuracy: {k: five}}", "metrics.top_k_accuracy.k", "'five'"),
        ("study: {seeds: many}", "study.seeds", "'many'"),
        ("study: {design: {name: search, trails: 4}}", "study.design", "'trails'"),
    ],
)
def test_a_fault_has_its_path(paths, text, path, word):
    found = paths(yaml.safe_load(text))
    assert list(found) == [path] and word in found[path].message


def test_a_component_without_its_name_has_the_options_of_its_kind(schema):
    """With the meanings of all, and the default that all have."""
    options = schema["$defs"]["ffn"]["then"]["else"]["properties"]
    assert options["expand"]["description"].startswith("glu: multiple of dim; null is 8/3 | mlp: ")
    assert options["bias"]["default"] is False
    assert "default" not in schema["$defs"]["tokenizer"]["then"]["else"]["properties"]["vocab_size"]


def test_a_component_of_a_users_file_is_in_the_schema_that_is_written_with_it(paths, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    config = {"norm": {"name": "mine", "power": 3}}
    assert list(paths(config)) == ["norm.name"]
    try:
        schema = json.loads(schema_text([str(tmp_path / "own.py")]))
    finally:
        forget_user_components()
    found = [*errors(schema, config), *errors(schema, {"norm": "mine"})]
    assert found == [] and schema["$defs"]["norm=mine"]["properties"]["power"]["default"] == 2
    assert [*errors(schema, {"norm": {"name": "mine", "pwoer": 3}})]


def test_the_command_prints_the_schema_or_writes_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tasks.cli.schema.schema_text", lambda components: f"{components}\n")
    file = tmp_path / "schema.json"
    assert output(capsys, "schema", "--components", "a.py")[:2] == (0, "['a.py']\n")
    assert output(capsys, "schema", "--out", file) == (0, "", "")
    assert file.read_text() == "[]\n"
    missing = tmp_path / "no" / "schema.json"
    message = f"{missing}: No such file or directory. Give another path."
    assert fault(capsys, "schema", "--out", missing) == message
