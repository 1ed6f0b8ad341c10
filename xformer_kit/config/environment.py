"""Values of a config that come from environment variables, `${oc.env:NAME}`."""

import re

from xformer_kit.config.difference import flat
from xformer_kit.registry import Fault, Faults, Node

SECRET = re.compile(
    "keys|secrets|passwords|credentials?|auth|pat|.*(key|token|secret|password|passwd|pass)"
)
NO_SECRET = {"monkey", "donkey", "turkey", "hockey", "jockey", "whiskey", "hotkey"}
NO_SECRET |= {"bypass", "compass", "surpass", "lowpass", "highpass", "bandpass"}
OURS = re.compile(r"\btoken_(types|shift)\b")  # keys of the package
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:([^,}]*)")


def secret_faults(config: Node) -> Faults:
    """Yields the fault of each value from the environment whose key or variable has a name like
    that of a secret: the resolved config is written into files and sent to loggers.

    config: before its interpolations are resolved.
    """
    for path, value in flat(config):
        if isinstance(value, (str, list)) and (names := VARIABLE.findall(str(value))):
            words = {
                word.lower() for text in (OURS.sub("", path), *names) for word in WORD.findall(text)
            }
            if any(map(SECRET.fullmatch, words - NO_SECRET)):
                yield Fault(
                    path,
                    "must not be a secret from the environment, since a run saves its config",
                    got=value,
                    fix="Read it in a component of your own, with os.environ.",
                )
