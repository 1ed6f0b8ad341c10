"""Values from environment variables are resolved into what a run saves, except secrets."""

import pytest

from xformer_kit.config import compose
from xformer_kit.config.hydra.environment import secret_faults
from xformer_kit.config.options.groups import GROUPS, MAPPING_GROUPS, NESTED_GROUPS
from xformer_kit.config.saved.difference import flat
from xformer_kit.registry import ConfigError


@pytest.mark.parametrize(
    ("key", "value", "secret"),
    [
        ("logger.entity", "${oc.env:ENTITY}", False),
        ("logger.entity", "${oc.env:MAX_TOKENS}", False),
        ("logger.entity", "${oc.env:MONKEY}", False),
        ("tokenizer.path", "${oc.env:HOME}/keys", False),
        ("callbacks.mine.api_key", "${logger.entity}", False),
        ("logger.entity", "${oc.env:MY_API_KEY}", True),
        ("logger.entity", "http://me:${oc.decode:${ oc.env : hfToken}}@host", True),
        ("logger.entity", "${oc.env:DB_PASSWORD,none}", True),
        ("logger.tags", ["a", "${oc.env:Secrets}"], True),
        ("callbacks.mine.api_key", "${oc.env:ENTITY}", True),
        ("callbacks.mine.apiKey", "${oc.env:ENTITY}", True),
        ("logger.entity", "${oc.env:WANDB_APIKEY}", True),
        ("logger.entity", "${oc.env:MYPASS}", True),
        ("logger.entity", "${oc.env:GITHUB_PAT}", True),
        ("logger.entity", "${oc.env:AUTH}", True),
        ("logger.entity", "${oc.env:AUTHTOKEN}", True),
        ("logger.entity", "${oc.env:AWS_CREDENTIAL}", True),
        ("logger.entity", "${oc.env:DB_PWD}", True),
        ("logger.entity", "${oc.env:GH_TOKENS}", True),
        ("logger.entity", "${oc.env:MY_PASSPHRASE}", True),
        ("logger.entity", "${oc.env:PASSWD}", True),
        ("logger.entity", "${oc.env:credentials}", True),
        ("logger.entity", "${oc.env:APIKEYS}", True),
        ("logger.entity", "${oc.env:JWT}", True),
        ("callbacks.mine.passphrases", "${oc.env:ENTITY}", True),
        ("tokenizer.path", "${oc.env:PWD}/mine.json", False),
        ("tokenizer.path", "${oc.env:OLDPWD}/mine.json", False),
        ("data.batch_tokens", "${oc.decode:${oc.env:BATCH_TOKENS}}", False),
        ("logger.entity", "${oc.env:MONKEYS}", False),
        ("attn.bypass", "${oc.env:PATH}", False),
        ("logger.entity", "${oc.env:AUTHOR}", False),
        ("extra.credentials.of", "${oc.env:ENTITY}", True),
    ],
)
def test_names_of_secrets(key, value, secret):
    config = value
    for part in reversed(key.split(".")):
        config = {part: config}
    assert [fault.path for fault in secret_faults(config)] == [key] * secret


@pytest.mark.parametrize(
    ("values", "value"),
    [
        ({"org": "${oc.env:ENTITY}"}, "of ${mine.org}"),
        ({"org": "${oc.env:ENTITY}"}, "${.org}"),
        ({"org": "${oc.env:ENTITY}"}, "${oc.select:mine.org}"),
        ({"org": "${oc.env:ENTITY}"}, ["${..org}"]),
        ({"org": "${oc.env:ENTITY}", "again": "${.org}"}, "${.again}"),
        ({"of": {"org": "${oc.env:ENTITY}"}}, "${.of}"),
    ],
)
def test_a_key_of_a_secret_is_followed_through_other_keys(monkeypatch, values, value):
    monkeypatch.setenv("ENTITY", "us")
    for key, paths in (("api_key", ["mine.api_key"]), ("other", [])):
        config = {"mine": {**values, key: value}}
        assert [fault.path for fault in secret_faults(config)] == paths


def test_the_name_of_a_variable_is_resolved(monkeypatch):
    monkeypatch.setenv("WHICH", "MY_API_KEY")
    for text in ("${oc.env:${which}}", "${oc.env:MY_${part}_KEY}", "${oc.env:${oc.env:WHICH}}"):
        config = {"which": "MY_API_KEY", "part": "API", "entity": text}
        assert [fault.path for fault in secret_faults(config)] == ["entity"]


def test_no_option_of_ours_has_the_name_of_a_secret():
    config = compose([], data=False)
    for group, registry in (GROUPS | NESTED_GROUPS | MAPPING_GROUPS).items():
        for number, name in enumerate(registry):
            key = f"{group}.{name}" if group in MAPPING_GROUPS else f"{group}{number}"
            config[key] = registry.options(name)
    paths = [path for path, _ in flat(config)]
    assert len(paths) > 300
    assert not [path for path in paths if list(secret_faults({path: "${oc.env:NAME}"}))]


def test_a_secret_of_the_environment_is_refused(monkeypatch, tmp_path):
    """On the command line and in a file; other values are resolved."""
    monkeypatch.setenv("ENTITY", "us")
    assert compose(["logger.entity=${oc.env:ENTITY}"], data=False)["logger"]["entity"] == "us"
    file = tmp_path / "mine.yaml"
    file.write_text("logger: {entity: '${oc.env:MY_KEY}'}")
    for words in (["logger.entity=${oc.env:MY_KEY}"], [f"experiment={file}"]):
        with pytest.raises(ConfigError) as refused:
            compose(words, data=False)
        assert str(refused.value) == (
            "logger.entity: must not be a secret from the environment, since a run saves its"
            " config; got ${oc.env:MY_KEY}. Read it in a component of your own, with os.environ."
        )
