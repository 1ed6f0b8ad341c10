"""What can the trainer be told? Lightning's plain-valued keywords and ours, as data that is read
without Lightning.

`OPTIONS` is the schema, `REPLACED` answers a Lightning keyword that one of ours stands for, and
`faults` checks a node. A test compares both tables with the installed signature of
`lightning.Trainer`.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal

from xformer_kit.registry import Context, Fault, Option, choices, mismatch, shown

PRECISIONS = ("auto", "32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true")

OURS = {
    "accumulate": Option(
        int | Literal["auto"], "auto", "micro-batches per optimizer step; auto: the fewest that fit"
    ),
    "val_every": Option(
        int | None, 200, "optimizer steps between validations; null: only at the end"
    ),
    "checkpoint_every": Option(
        int | None, 200, "optimizer steps between checkpoints; null: at validations and the end"
    ),
    "on_nonfinite": Option(
        Literal["stop", "skip"],
        "stop",
        "what a non-finite loss or gradient does; its step is left out",
    ),
    "rank_timeout": Option(
        float | None,
        60.0,
        "seconds after which a rank that gives no sign is ended, and named; null: never",
    ),
    "compile": Option(bool | Literal["auto"], "auto", "compile each block; auto: on CUDA"),
    "profile": Option(
        int,
        0,
        "optimizer steps under torch's profiler, once 5 have passed, or half of a shorter run;"
        " 0: off",
    ),
    "decode_tokens": Option(
        int,
        0,
        "tokens that data.batch_size texts are written by at the end, to time decoding; 0: off",
    ),
}

LIGHTNING = {
    "accelerator": Option(Literal["auto", "cpu", "gpu", "cuda", "mps"], "auto", "kind of device"),
    "strategy": Option(
        Literal["auto", "ddp"],
        "auto",
        "how devices share the work; auto: ddp where there are several",
    ),
    "devices": Option(int | list[int] | str, 1, "devices per node: how many, which, or auto"),
    "num_nodes": Option(int, 1, "machines"),
    "precision": Option(Literal[PRECISIONS], "auto", "auto: bf16-mixed on CUDA, 32-true elsewhere"),  # type: ignore[valid-type]
    "max_epochs": Option(
        int | None, None, "passes over the training data; gives max_steps where that is null"
    ),
    "max_steps": Option(int | None, 2000, "optimizer steps"),
    "max_time": Option(
        str | dict | None, None, "DD:HH:MM:SS after which training stops; it can be resumed"
    ),
    "limit_train_batches": Option(
        int | float | None, None, "optimizer steps per epoch, or a fraction of them"
    ),
    "limit_val_batches": Option(
        int | float | None, None, "validation batches per device, or a fraction of them"
    ),
    "overfit_batches": Option(int, 0, "train on this many global batches again and again; 0: off"),
    "num_sanity_val_steps": Option(int, 0, "validation batches before training"),
    "log_every_n_steps": Option(int, 10, "optimizer steps between rows of metrics.csv"),
    "enable_checkpointing": Option(bool, True, "write checkpoints"),
    "enable_progress_bar": Option(bool, True, "show the live bar"),
    "enable_model_summary": Option(bool, False, "print Lightning's table of modules"),
    "gradient_clip_val": Option(
        float | None, 1.0, "largest norm (or value) of the gradient; null: no clipping"
    ),
    "gradient_clip_algorithm": Option(
        Literal["norm", "value"], "norm", "what gradient_clip_val bounds"
    ),
    "deterministic": Option(bool | Literal["warn"] | None, None, "deterministic algorithms only"),
    "benchmark": Option(bool | None, None, "let cuDNN choose by timing"),
    "inference_mode": Option(bool, True, "inference mode in evaluation outside of training"),
    "detect_anomaly": Option(bool, False, "autograd's anomaly detection"),
}

OPTIONS: dict[str, Option] = LIGHTNING | OURS

REPLACED = {
    "accumulate_grad_batches": "trainer.accumulate",
    "val_check_interval": "trainer.val_every (optimizer steps)",
    "check_val_every_n_epoch": "trainer.val_every (optimizer steps)",
    "reload_dataloaders_every_n_epochs": (
        "data, whose order is a function of seed, epoch and position"
    ),
    "fast_dev_run": "debug=fast",
    "barebones": "logger=none trainer.enable_progress_bar=false",
    "logger": "logger=wandb|csv|tensorboard|none",
    "default_root_dir": "hydra.run.dir",
    "use_distributed_sampler": "data, which gives every rank its slice",
    "limit_test_batches": "xformer evaluate RUN",
    "limit_predict_batches": "xformer generate RUN",
    "profiler": "trainer.profile=10 or debug=profile",
    "min_steps": "trainer.max_steps, which every run reaches",
    "min_epochs": "trainer.max_steps, which every run reaches",
    "sync_batchnorm": "the parts, none of which has a batch norm",
    "callbacks": "parts=[my_callbacks.py] callbacks.mine={}",
    "plugins": "trainer.precision and trainer.strategy",
    "enable_autolog_hparams": "logger=...; the config is always logged",
    "model_registry": "logger=...; checkpoints stay in the run's directory",
}

RECOMPUTED = (
    "gradient_checkpointing",
    "activation_checkpointing",
    "activation_checkpoint",
    "checkpoint_activations",
)

_AT_LEAST = {
    "max_steps": 1,
    "max_epochs": 1,
    "num_nodes": 1,
    "accumulate": 1,
    "val_every": 1,
    "checkpoint_every": 1,
    "log_every_n_steps": 1,
    "overfit_batches": 0,
    "num_sanity_val_steps": -1,
    "profile": 0,
    "decode_tokens": 0,
}


def seconds(limit: str | Mapping[str, Any] | None) -> float | None:
    """trainer.max_time in seconds: DD:HH:MM:SS, or a mapping of timedelta's keywords. Raises
    ValueError or TypeError.
    """
    if limit is None:
        return None
    if isinstance(limit, Mapping):
        return timedelta(**limit).total_seconds()
    if not (found := re.fullmatch(r"(\d+):(\d\d):(\d\d):(\d\d)", limit.strip())):
        raise ValueError(limit)
    return timedelta(
        **dict(zip(("days", "hours", "minutes", "seconds"), map(int, found.groups()), strict=True))
    ).total_seconds()


def faults(node: Any, path: str = "trainer") -> Iterator[Fault]:
    """Every fault of a trainer node, each a sentence that starts with its config path."""
    if not isinstance(node, Mapping):
        yield Fault(
            path,
            "must hold the trainer's options",
            got=shown(node),
            fix="Try trainer=default.",
        )
        return
    wrong = set()
    for key, value in node.items():
        if key in REPLACED:
            yield Fault(
                f"{path}.{key}",
                f"is decided by {REPLACED[key]} here",
                got=shown(value),
                fix="Set that instead.",
            )
        elif key in RECOMPUTED:
            yield Fault(
                f"{path}.{key}",
                "activations are kept, not computed again",
                got=shown(value),
                fix=(
                    f"For less memory leave it out and set {path}.accumulate=4, or lower"
                    " data.batch_size."
                ),
            )
        elif key not in OPTIONS:
            yield Fault(
                f"{path}.{key}",
                f"the trainer has no option '{key}'",
                fix=choices(key, sorted(OPTIONS)),
            )
        elif found := list(mismatch(OPTIONS[key].type, value, f"{path}.{key}", Context())):
            yield from found
        else:
            continue
        wrong.add(key)
    yield from _out_of_range({key: value for key, value in node.items() if key not in wrong}, path)


def _out_of_range(node: Mapping[str, Any], path: str) -> Iterator[Fault]:
    for key, bound in _AT_LEAST.items():
        value = node.get(key)
        if isinstance(value, int) and value < bound:
            yield Fault(f"{path}.{key}", f"must be at least {bound}", got=f"{value}")
    for key in ("limit_train_batches", "limit_val_batches", "gradient_clip_val", "rank_timeout"):
        value = node.get(key)
        if value is not None and not value > 0:
            yield Fault(
                f"{path}.{key}", "must be above 0", got=f"{value}", fix="null means no limit."
            )
        elif isinstance(value, float) and key.startswith("limit_") and value > 1.0:
            yield Fault(
                f"{path}.{key}",
                "a fraction is at most 1.0",
                got=f"{value}",
                fix="Give a whole number to count batches.",
            )
    if "max_steps" in node and node["max_steps"] is None and node.get("max_epochs") is None:
        yield Fault(
            f"{path}.max_steps",
            "must be given where max_epochs is not",
            got="null and null",
            fix="Try max_steps=2000.",
        )
    yield from _devices(node.get("devices", 1), path)
    limit = node.get("max_time")
    try:
        if limit is not None and not (seconds(limit) or 0) > 0:
            yield Fault(
                f"{path}.max_time",
                "must be above 0",
                got=shown(limit),
                fix="null means no limit.",
            )
    except (ValueError, TypeError, OverflowError):
        yield Fault(
            f"{path}.max_time",
            "must be days:hours:minutes:seconds",
            got=shown(limit),
            fix="Try 00:08:00:00 for eight hours.",
        )


def _devices(devices: Any, path: str) -> Iterator[Fault]:
    way_out = "Give a number, a list of indices, or auto."
    if isinstance(devices, str) and devices != "auto" and not devices.isdigit():
        yield Fault(
            f"{path}.devices",
            "must be a number, a list of indices or auto",
            got=shown(devices),
            fix=way_out,
        )
    elif isinstance(devices, int) and devices < 1 and devices != -1:
        yield Fault(
            f"{path}.devices",
            "must be at least 1, or -1 for all",
            got=f"{devices}",
            fix=way_out,
        )
    elif isinstance(devices, list) and (
        not devices or len(set(devices)) < len(devices) or min(devices) < 0
    ):
        yield Fault(
            f"{path}.devices",
            "must be different indices from 0",
            got=f"{devices}",
            fix=way_out,
        )
