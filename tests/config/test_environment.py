"""Values from environment variables are resolved into what a run saves, except secrets."""

import pytest

from xformer_kit.config import compose
from xformer_kit.config.environment import secret_faults
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
        ("extra.credentials.of", "${oc.env:ENTITY}", True),
    ],
)
def test_names_of_secrets(key, value, secret):
    config = value
    for part in reversed(key.split(".")):
        config = {part: config}
    assert [fault.path for fault in secret_faults(config)] == [key] * secret


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
