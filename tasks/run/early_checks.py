"""Checks of a valid config against files and the hub that need neither Lightning nor the data."""

from collections.abc import Callable, Iterable
from typing import Any

from tasks import Config
from tasks.process.command_faults import collect, refuse
from xformer_kit.data.tokenizer import pretrained
from xformer_kit.registry import Fault


def check_sources(configs: Iterable[Config]) -> None:
    """Raises ConfigError if the run that a config starts from has other tensors than its model, or
    if its pretrained tokenizer cannot be read or is none: one on the hub is downloaded into the
    hub's cache.
    """
    faults: list[Fault] = []
    for config in configs:
        with collect(faults):
            if config["tokenizer"]["name"] == "pretrained":
                pretrained.check_file(config["tokenizer"]["path"])
            if config["init_from"].get("run") is not None:
                from tasks.run.init_from import check_shapes  # takes seconds

                check_shapes(config)
    refuse(dict.fromkeys(faults))


def with_sources(compose: Callable[[list[str]], tuple[Config, list[Fault]]]) -> Any:
    """Returns the function that composes the variants of a study, with the faults of
    `check_sources`.
    """

    def composed(words: list[str]) -> tuple[Config, list[Fault]]:
        config, faults = compose(words)
        if not faults:
            with collect(faults):
                check_sources([config])
        return config, faults

    return composed
