"""Values of a config that come from environment variables, `${oc.env:NAME}`."""

import re
from contextlib import suppress

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from xformer_kit.config.saved.difference import flat
from xformer_kit.registry import Fault, Faults, Node

SECRET = re.compile(
    "(?!(monkey|donkey|turkey|hockey|jockey|whiskey|hotkey)s?$|(by|com|sur|low|high|band)pass$)"
    "(.*(key|token|secret|passw(or)?d|pass|passphrase|passcode|pwd|credential)|auth|pat|pw|jwt)s?"
)
# Names with such a word that are none: keys of the package, the current directory, and counts.
NO_SECRET = re.compile(
    r"\btoken_(types|shift)\b|\b(OLD)?PWD\b|(?i:(\b|(max|min|num|new|batch|total)_?)tokens\b)"
)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def secret_faults(config: Node) -> Faults:
    """Yields the fault of each value from the environment whose key or variable has a name like
    that of a secret: the resolved config is written into files and sent to loggers.

    config: before its interpolations are resolved.
    """
    for path, value in flat(config):
        if "${" in str(value) and (names := _variables(config, path)):
            words = WORD.findall(" ".join(NO_SECRET.sub("", text) for text in (path, *names)))
            if any(SECRET.fullmatch(word.lower()) for word in words):
                yield Fault(
                    path,
                    "must not be a secret from the environment, since a run saves its config",
                    got=value,
                    fix="Read it in a component of your own, with os.environ.",
                )


def _variables(config: Node, path: str) -> list[str]:
    """Returns the names of the environment variables that are read when the value at a path is
    resolved, also through other keys.
    """
    names: list[str] = []

    def read(name: str, *default: str | None) -> str | None:
        names.append(str(name))
        return oc.env(name, *default)

    OmegaConf.register_new_resolver("oc.env", read, replace=True)
    try:
        with suppress(OmegaConfBaseException):  # raised again when the whole config is resolved
            value = OmegaConf.select(OmegaConf.create(dict(config)), path)
            if OmegaConf.is_config(value):
                OmegaConf.to_container(value, resolve=True)
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)
    return names
