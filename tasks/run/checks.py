"""Checks of a run's config against its data, the plan of its study and the other ranks. All raise
ConfigError.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from tasks import Config
from tasks.process.ranks import all_gather
from tasks.run.init_from import begun_with
from xformer_kit.config.faults.data_faults import form_of
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.data.tokenizer.library import LibraryTokenizer
from xformer_kit.optim import averages_weights
from xformer_kit.optim.schedules import SCHEDULES, shortened
from xformer_kit.plan import stacks
from xformer_kit.registry import config_error
from xformer_kit.study.run_key import run_key

SAMPLE = " the words"  # of a text, which begins with a space


def check_vocabulary(vocab_size: int | None, tokenizer_size: int) -> None:
    """Raises if model.vocab_size is smaller than the tokenizer's size."""
    if vocab_size is not None and vocab_size < tokenizer_size:
        raise config_error(
            "model.vocab_size",
            f"must be at least the tokenizer's {tokenizer_size}",
            vocab_size,
            "Set it to null.",
        )


def check_planned(planned_key: str | None, config: Config, fingerprint: str, run: Path) -> None:
    """Raises if the key of a run of a study, with the directory `run`, is not the planned one: its
    data, its components or the weights that it starts from may have changed since.
    """
    if planned_key is None:
        return
    if planned_key != (key := run_key(config, fingerprint, begun_with(config, run))):
        raise config_error(
            "study",
            f"this run was planned as {planned_key} and is {key}: its config, its data, its"
            " components or the weights of init_from.run are not those of the plan",
            fix="Start the study again; the run's config.yaml has what was composed.",
        )


@dataclass(eq=False)
class SameConfig:
    """Raises before the first step if ranks have different configs or data."""

    digest: str  # of both

    def on_fit_start(self, trainer: Any, task: Any) -> None:
        digests = all_gather(self.digest, trainer.world_size)
        if len(set(digests)) > 1:
            raise config_error(
                "config",
                "must be the same on all ranks, and the data too",
                f"the hashes {', '.join(digests)}",
                "Start all from one file, with the same text.",
            )


def schedule_notes(config: Config, steps: int) -> Iterator[str]:
    """Yields a message if the warm-up or the decay of a run of `steps` is shortened, and for an
    optimizer that averages the weights itself with a schedule that falls.
    """
    warmup = config["schedule"].get("warmup", 0)
    if isinstance(warmup, int) and (taken := shortened(warmup, steps)) != warmup:
        yield (
            f"schedule.warmup: {warmup:,} steps are not fewer than the {steps:,} of the run, so the"
            f" warm-up is shortened to a tenth of the run, {taken:,} steps."
        )
    if (name := config["schedule"]["name"]) != "constant" and averages_weights(config["optim"]):
        optim = config["optim"]["name"]
        yield f"schedule: optim '{optim}' is meant for schedule=constant, not {name}."
    if getattr(SCHEDULES.create(config["schedule"], max_steps=steps), "is_cut", False):
        yield "schedule: the decay would begin within the warm-up, and is therefore shorter."


def mask_notes(config: Config) -> Iterator[str]:
    """Yields a message for a mask that hides the right side from a masked language model, and for
    each window that hides no token of the longest example of a text.
    """
    if config["task"]["name"] == "masked_language_modeling" and _sees_left_only(config):
        both = "mask.causal=false" if "causal" in config["mask"] else "mask=full"
        yield (
            "mask: a masked token is predicted from the tokens on its left only;"
            f" {both} adds those on its right."
        )
    if form_of(config["data"]) != "text":
        return
    length = max(config["data"]["seq_len"], config["data"].get("valid_len") or 0)
    masks = {group.mask for plan in stacks(config) for group in plan.attention.groups}
    for mask in sorted(masks, key=repr):
        left, right = mask.band() or (0, 0)
        if length - 1 <= left < inf and right in (0, left):
            other = "full" if right else "causal"
            yield (
                f"mask: the window of {left + 1:,} tokens is not shorter than the {length:,} of an"
                f" example (data.seq_len), so the mask has the effect of '{other}'."
            )


def data_notes(config: Config, prepared: Any) -> Iterator[str]:
    """Yields messages on the prepared data that do not prevent training."""
    tokenizer_class = TOKENIZERS[config["tokenizer"]["name"]]
    requested = config["tokenizer"].get("vocab_size")
    for tokenizer in dict.fromkeys((prepared.source_tokenizer, prepared.tokenizer)):
        if not getattr(tokenizer, "decodes", True):
            yield (
                "tokenizer.path: the file cannot be decoded: it has no decoder, and its"
                " pre-tokenizer removes what separates the words. Texts are shown as tokens with"
                " spaces between them."
            )
        elif isinstance(tokenizer, LibraryTokenizer) and (read := tokenizer.misread(SAMPLE)):
            yield (
                "tokenizer.path: the decoder of the file does not fit its other parts:"
                f" {SAMPLE!r} is shown as {read!r}, which has other letters or tokens."
            )
        if not isinstance(requested, int) or not isinstance(tokenizer, tokenizer_class):
            continue
        if (learned := getattr(tokenizer, "vocab_size", 0)) < requested:
            yield (
                f"tokenizer.vocab_size: {requested:,} tokens were asked for, and the text gave"
                f" {learned:,}."
            )
    if prepared.characters_dropped:
        counts = [f"{count:,} of {split}" for split, count in prepared.characters_dropped.items()]
        yield (
            f"tokenizer: it drops characters that it has no token for: {', '.join(counts)}. The"
            " model does not read them; bits per byte count them."
        )
    for split, (count, total, units) in prepared.overlap.items():
        yield (
            f"data: {count:,} of the {total:,} {units} of {split} are in training too: its figures"
            " are better than on new data. Leave them out of one of the two."
        )


def _sees_left_only(config: Config) -> bool:
    """Whether no attention of the model attends to a later token."""
    masks = {group.mask for plan in stacks(config) for group in plan.attention.groups}
    bands = [mask.band() for mask in masks]
    return bool(bands) and all(band is not None and band[1] == 0 for band in bands)


def lora_notes(config: Config) -> Iterator[str]:
    """Yields a message if adapters are trained on weights that have learned nothing."""
    if (config.get("lora") or {}).get("rank") and not (config.get("init_from") or {}).get("run"):
        yield (
            "lora.rank: the adapters are trained on random weights, which are frozen; init_from=RUN"
            " takes those of a run."
        )
