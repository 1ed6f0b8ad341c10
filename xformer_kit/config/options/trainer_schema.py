"""Options of the trainer: Lightning's plain-valued keywords and our own, read without Lightning.

`OPTIONS` is the schema, `REPLACED` has what sets Lightning's other keywords here, and
`faults` checks a node. A test compares both tables with the installed signature of
`lightning.Trainer`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from xformer_kit.registry import (
    Context,
    Fault,
    Faults,
    Node,
    Options,
    Registry,
    above,
    at_least,
    at_most,
    format_value,
    independent_check,
    other_option,
)
from xformer_kit.registry.messages import alternatives, divisors
from xformer_kit.registry.other_libraries import REPLACED

TRAINER = Registry("settings", group="trainer")
MAX_STEPS, MAX_TOKENS = 10**12, 10**15  # more overflow counters of examples


@TRAINER.register("ours")
@dataclass(frozen=True)
class OwnTrainerOptions:
    """Options of our own."""

    # tokens of training, with padding, in whole optimizer steps; null: max_steps or max_epochs
    max_tokens: int | None = None
    # micro-batches per optimizer step; auto: the fewest that fit
    accumulate: int | Literal["auto"] = "auto"
    val_every: int | None = 200  # optimizer steps between validations; null: only at the end
    # optimizer steps between checkpoints; null: at validations and the end
    checkpoint_every: int | None = 200
    # what a non-finite loss or gradient does; its step is left out
    on_nonfinite: Literal["stop", "skip"] = "stop"
    # seconds after which a rank that sends no heartbeat is ended, and named; null: never
    rank_timeout: float | None = 60.0
    compile: bool | Literal["auto"] = "auto"  # compile each block and the loss; auto: on CUDA
    # optimizer steps under torch's profiler, once 5 have passed, or half of a shorter run; 0: off
    profile: int = 0
    # write a text of the model at each validation, to samples.csv, and print one at the end
    sample: bool = True
    # tokens that data.batch_size texts are written by at the end, to time decoding; 0: off
    decode_tokens: int = 0
    # of strategy=fsdp and hsdp: whether a block's parameters are freed after its forward pass, and
    # gathered again in the backward pass
    reshard_after_forward: bool = True
    # dtype in which parameters are gathered and computed with; null: that of the parameters
    gather_dtype: Literal["bf16", "fp32"] | None = None
    reduce_dtype: Literal["bf16", "fp32"] | None = None  # of sums of gradients; null: gather_dtype
    # when ranks sum gradients: in a step's last micro-batch, or in each, which needs less memory
    sync_gradients: Literal["last", "each"] = "last"
    cpu_offload: bool = False  # keep parameters and the optimizer's state in the host's memory
    shard_ranks: int | None = None  # of hsdp: ranks of one copy; null: those of a machine


@TRAINER.register("lightning")
@dataclass(frozen=True)
class LightningOptions:
    """Keywords of lightning.Trainer."""

    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"  # kind of device
    # how devices share the work: ddp, each with the model; fsdp, each with a part of it; hsdp,
    # several groups of ranks, each as fsdp; auto: ddp where there are several
    strategy: Literal["auto", "ddp", "fsdp", "hsdp"] = "auto"
    devices: int | list[int] | str = 1  # devices per node: how many, which, or auto
    num_nodes: int = 1  # machines
    # auto: bf16-mixed on CUDA, 32-true elsewhere; fp8-mixed: bf16-mixed with 8-bit products
    precision: Literal[
        "auto", "32-true", "bf16-mixed", "16-mixed", "fp8-mixed", "bf16-true", "16-true", "64-true"
    ] = "auto"
    # passes over the training data; null: max_steps or max_tokens
    max_epochs: int | None = None
    max_steps: int | None = 2000  # optimizer steps; null: max_tokens or max_epochs
    max_time: str | dict | None = None  # DD:HH:MM:SS after which training stops; it can be resumed
    # optimizer steps per epoch, or a fraction of them
    limit_train_batches: int | float | None = None
    # validation batches per device, or a fraction of them
    limit_val_batches: int | float | None = None
    overfit_batches: int = 0  # train on this many global batches again and again; 0: off
    num_sanity_val_steps: int = 0  # validation batches before training
    log_every_n_steps: int = 10  # optimizer steps between rows of metrics.csv
    enable_checkpointing: bool = True  # write checkpoints
    enable_progress_bar: bool = True  # show the live bar
    enable_model_summary: bool = False  # print Lightning's table of modules
    # largest norm (or value) of the gradient; null: no clipping
    gradient_clip_val: float | None = 1.0
    gradient_clip_algorithm: Literal["norm", "value"] = "norm"  # what gradient_clip_val bounds
    deterministic: bool | Literal["warn"] | None = None  # deterministic algorithms only
    benchmark: bool | None = None  # let cuDNN choose by timing
    inference_mode: bool = True  # inference mode in evaluation outside of training
    detect_anomaly: bool = False  # autograd's anomaly detection


@TRAINER.register("all")
@dataclass(frozen=True)
class TrainerOptions(OwnTrainerOptions, LightningOptions):
    """All options of the trainer."""

    @classmethod
    def check(cls, options: Options, context: Context) -> Faults:
        return _out_of_range(options)


# Options of sharded strategies: these, and those in which a run computes with other numbers.
SHARDED = ("fsdp", "hsdp")
PLACES = ("reshard_after_forward", "sync_gradients", "cpu_offload", "shard_ranks")
DTYPES = ("gather_dtype", "reduce_dtype")
OURS, LIGHTNING, OPTIONS = (TRAINER.options(name) for name in ("ours", "lightning", "all"))


def seconds(limit: str | Node | None) -> float | None:
    """Returns trainer.max_time in seconds: DD:HH:MM:SS, or a mapping of timedelta's keywords.
    Raises ValueError or TypeError.
    """
    if limit is None:
        return None
    if isinstance(limit, Mapping):
        return timedelta(**limit).total_seconds()
    if not (found := re.fullmatch(r"(\d+):(\d\d):(\d\d):(\d\d)", limit.strip())):
        raise ValueError(limit)
    days, hours, minutes, rest = map(int, found.groups())
    return timedelta(days, rest, minutes=minutes, hours=hours).total_seconds()


def faults(node: Any) -> Faults:
    """Yields every fault of a trainer node."""
    if not isinstance(node, Mapping):
        rule, fix = "must be a mapping of options", "Try trainer=default."
        yield Fault("trainer", rule, got=format_value(node), fix=fix)
        return
    replaced = {key: value for key, value in node.items() if key in REPLACED or key == "name"}
    for key, value in replaced.items():
        decided_by, fix = REPLACED.get(key, ("name", ""))
        other = other_option(key, value)
        fix = fix or (other.fix if other else "")
        rule = f"is decided by {decided_by} here"
        yield Fault(f"trainer.{key}", rule, format_value(value), fix)
    own = {key: value for key, value in node.items() if key not in replaced}
    yield from TRAINER.faults({"name": "all"} | own, "trainer", Context())


@independent_check
def _out_of_range(options: Options) -> Faults:
    """Yields the faults of options with valid types whose values are out of range."""
    numbers = Options(**{k: v for k, v in options.node.items() if isinstance(v, (int, float))})
    yield from at_least(
        numbers,
        max_steps=1,
        max_epochs=1,
        max_tokens=1,
        num_nodes=1,
        accumulate=1,
        val_every=1,
        checkpoint_every=1,
        log_every_n_steps=1,
        overfit_batches=0,
        num_sanity_val_steps=-1,
        profile=0,
        decode_tokens=0,
    )
    yield from at_most(numbers, max_steps=MAX_STEPS, max_epochs=MAX_STEPS, max_tokens=MAX_TOKENS)
    limits = dict.fromkeys(("limit_train_batches", "limit_val_batches"), 0)
    unlimited = "null means no limit."
    yield from above(numbers, unlimited, **limits, gradient_clip_val=0, rank_timeout=0)
    for key, value, _ in numbers.bounded(limits):
        if isinstance(value, float) and value > 1.0:
            yield Fault(
                key,
                "a fraction is at most 1.0",
                got=value,
                fix="Give a whole number to count batches.",
            )
    if options.max_steps is options.max_tokens is options.max_epochs is None:
        rule = "must be set if trainer.max_tokens and trainer.max_epochs are not"
        yield Fault("max_steps", rule, got="null", fix="Try trainer.max_steps=2000.")
    yield from _devices(options.devices)
    yield from _sharded(options)
    limit = options.max_time
    try:
        if limit is not None and not (seconds(limit) or 0) > 0:
            yield Fault("max_time", "must be above 0", got=format_value(limit), fix=unlimited)
    except (ValueError, TypeError, OverflowError):
        rule, fix = "must be days:hours:minutes:seconds", "Try 00:08:00:00 for eight hours."
        yield Fault("max_time", rule, got=format_value(limit), fix=fix)


def _sharded(options: Options) -> Faults:
    """Yields the faults of options of sharded strategies, and of what these cannot do."""
    if options.strategy not in SHARDED:
        for key in (*PLACES, *DTYPES):
            if (value := options.node.get(key, OURS[key].default)) != OURS[key].default:
                rule = "has an effect only with trainer.strategy=fsdp or hsdp"
                yield Fault(key, rule, got=format_value(value), fix="Leave it out.")
        return
    yield from at_least(options, shard_ranks=1)
    if options.precision in ("16-mixed", "fp8-mixed"):
        rule = f"is not supported with trainer.strategy={options.strategy}"
        yield Fault("precision", rule, got=options.precision, fix="Use bf16-mixed.")
    if options.strategy == "fsdp" and options.shard_ranks is not None:
        rule, fix = "is of trainer.strategy=hsdp", "Use trainer=hsdp, or leave it out."
        yield Fault("shard_ranks", rule, got=options.shard_ranks, fix=fix)


def shard_ranks_fault(trainer: Mapping[str, Any], ranks: int) -> Fault | None:
    """The fault of trainer.shard_ranks in a run of so many ranks."""
    group = trainer.get("shard_ranks") or 1
    if ranks % group == 0:
        return None
    fix = f"Try {alternatives(divisors(ranks))}."
    return Fault("shard_ranks", f"must divide the {ranks} ranks of the run", got=group, fix=fix)


def _devices(devices: int | list[int] | str) -> Faults:
    """Yields the fault of trainer.devices."""
    fix = "Give a number, a list of indices, or auto."
    if isinstance(devices, str):
        valid = devices == "auto" or devices.isdigit()
        rule = "names no devices"
    elif isinstance(devices, list):
        valid = bool(devices) and len(set(devices)) == len(devices) and min(devices) >= 0
        rule = "must be different indices from 0"
    else:
        valid, rule = devices >= 1 or devices == -1, "must be at least 1, or -1 for all"
    if not valid:
        yield Fault("devices", rule, got=format_value(devices), fix=fix)
