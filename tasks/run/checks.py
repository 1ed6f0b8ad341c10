"""Checks of a run against its data, its plan and its other ranks; all raise ConfigError."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tasks import Config
from tasks.run.ranks import gathered
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.registry import config_error
from xformer_kit.study.run_key import run_key


def check_vocabulary(wanted: int | None, needed: int) -> None:
    """model.vocab_size must be at least the tokenizer's size."""
    if wanted is not None and wanted < needed:
        raise config_error(
            "model.vocab_size",
            f"must be at least the tokenizer's {needed}",
            wanted,
            "Set it to null.",
        )


def check_planned(planned: str | None, config: Config, fingerprint: str) -> None:
    """A run of a study must be the one that its plan has: the plan composes the config by itself,
    and Hydra and its launcher compose it again.
    """
    if planned is not None and planned != (key := run_key(config, fingerprint)):
        raise config_error(
            "study",
            f"this run was planned as {planned} and is {key}: its config, its data or its"
            " components are not those of the plan",
            fix="Start the study again; the run's config.yaml has what was composed.",
        )


@dataclass(eq=False)
class SameConfig:
    """Raises ConfigError before the first step if ranks do not hold the same config and data."""

    digest: str
    fingerprint: str

    def on_fit_start(self, trainer: Any, task: Any) -> None:
        found = gathered((self.digest, self.fingerprint), trainer.world_size)
        digests, fingerprints = zip(*found, strict=True)
        if len(set(digests)) > 1:
            raise config_error(
                "config",
                "must be the same on all ranks",
                f"the hashes {', '.join(digests)}",
                "Start all from one file.",
            )
        if len(set(fingerprints)) > 1:
            raise config_error(
                "data",
                "must be the same on all ranks; its fingerprints differ",
                fix="Give every machine the same text.",
            )


def notes(config: Config, prepared: Any) -> Iterator[str]:
    """Notes on the data that do not prevent training."""
    node = config["tokenizer"]
    for tokenizer in dict.fromkeys((prepared.source_tokenizer, prepared.tokenizer)):
        asked, has = node.get("vocab_size"), getattr(tokenizer, "vocab_size", 0)
        own = isinstance(tokenizer, TOKENIZERS[node["name"]])
        if own and isinstance(asked, int) and has < asked:
            yield (
                f"tokenizer.vocab_size: {asked:,} tokens were asked for, and the text gave {has:,}."
            )
    for split, (count, total, what) in prepared.overlap.items():
        yield (
            f"data: {count:,} of the {total:,} {what} of {split} are in training too: its figures"
            " are better than on new data. Leave them out of one of the two."
        )
