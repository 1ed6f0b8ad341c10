"""Which folder or file of xformer_kit and of tasks may import which others."""

KINDS = ("attention", "mask", "position", "norm", "placement", "ffn")
GROUND = {"registry", "tensors", "model.tokens"}

# What each unit of xformer_kit may import at import time. A unit is a folder, or a file of model/.
MAY: dict[str, set[str]] = {
    "registry": set(),
    "model.tokens": {"registry"},
    "tensors": {"registry"},
    "model.init": {"registry", "tensors"},
    "model.initialise": {"model.init", "tensors"},
    "model.report": set(),
    "model.transfer": {"registry"},
    "model.lora": {"ffn", "model.initialise", "tensors"},
    "model.cache": {"registry"},
    "model.loss": set(),
    "model.fused_projections": set(),
    "model.uncompiled": set(),
    "model.meta_results": set(),
    "kernel": GROUND | {"model.uncompiled"},
    **dict.fromkeys(KINDS, GROUND),
    "attention": GROUND | {"kernel", "model.fused_projections", "model.cache"},
    "extra": GROUND | {"model.cache"},
    "ffn": GROUND | {"model.fused_projections"},
    "plan": {*KINDS, "extra", "kernel", "registry"},
    "model.generation_cache": GROUND | {"model.cache"},
    "model.block": GROUND | {"attention", "extra", "placement", "model.cache", "model.report"},
    "model.stack": GROUND
    | {"extra", "kernel", "placement", "position"}
    | {"model.block", "model.generation_cache", "model.report"},
    "model.stack_cache": {"model.block", "model.cache", "model.generation_cache", "model.stack"},
    "zoo": GROUND | {*KINDS, "kernel", "model.cache"},  # imported by the registry on demand only
    "model.compiling": {"model.stack"},
    "model.head": {"model.loss", "model.fused_projections"},
    "model.model": GROUND
    | {"model.generation_cache", "model.head", "model.report", "model.stack", "model.stack_cache"},
    "model.build": GROUND
    | {*KINDS, "extra", "kernel", "plan"}
    | {"model.block", "model.head", "model.init", "model.initialise", "model.lora"}
    | {"model.model", "model.stack"},
    "model.sharding": {"model.model", "model.stack"},
    "objective": GROUND | {"model.model"},
    "generate": GROUND | {"model.model", "model.generation_cache", "model.fused_projections"},
    "data": GROUND,
    "optim": {"registry", "tensors"},
    "config": {*KINDS, "extra", "kernel", "plan", "model.init", "model.build", "model.lora"}
    | {"objective", "data", "optim", "registry"},
    "model.checkpoint": {"config", "registry"},
    "model.api": {"config", "data", "objective", "registry"}
    | {"model.build", "model.checkpoint", "model.lora", "model.model"},
    "inspect": GROUND
    | {*KINDS, "extra", "kernel", "plan", "objective", "data", "optim", "config"}
    | {"model.block", "model.build", "model.uncompiled", "model.head", "model.loss"}
    | {"model.meta_results", "model.model", "model.stack"},
    "study": {"registry", "config", "inspect"},
    "laws": GROUND
    | {*KINDS, "extra", "kernel", "plan", "config"}
    | {"model.block", "model.build", "model.generation_cache", "model.initialise", "model.model"}
    | {"model.compiling", "model.meta_results", "model.stack"},
    "model": set(),
    "__init__": {"registry"},
    "__main__": set(),
}
# Upward imports, at call time only.
LATE = {("model.model", "generate"), ("__init__", "config"), ("__init__", "model.api")}
# What each unit of tasks may import. A unit is a folder, a file of run/ that needs no other file of
# it, or "modules", the files at the top: the Lightning modules and the data module.
OF_RUN = {
    *("run.auto_accumulate", "run.exit_codes", "run.faults"),
    *("run.job", "run.seeds"),
}
EVERYWHERE = {"__init__", "run.faults"}
TASKS_MAY: dict[str, set[str]] = {
    "__init__": set(),
    "run.faults": set(),
    "run.exit_codes": set(),
    "run.seeds": set(),
    "run.auto_accumulate": set(),
    "run.job": set(),
    "run.ranks": {"run.exit_codes"},
    "run.processes": {"run.exit_codes", "run.job", "run.ranks"},
    "run.checkpoints": {"run.exit_codes", "logging"},
    "run.generation": set(),
    "logging": {"run.exit_codes", "modules"},
    "modules": {"run.generation", "run.processes", "run.ranks", *OF_RUN},
    "callbacks": {
        "modules",
        "run.generation",
        "logging",
        "run.checkpoints",
        "run.processes",
        "run.ranks",
        "run.exit_codes",
    },
    "run": {
        "modules",
        "logging",
        "callbacks",
        "run.checkpoints",
        "run.processes",
        "run.ranks",
        *OF_RUN,
    },
    "study": {"modules", "logging", *OF_RUN},
    "entry": {"cli", "run.exit_codes"},
    "run.hydra_app": {
        *("study", "logging", "run"),
        *("run.exit_codes", "run.job", "run.processes", "run.ranks"),
    },
    "cli": {
        "modules",
        "run.generation",
        "logging",
        "study",
        "run",
        "run.processes",
        "run.ranks",
        "run.hydra_app",
        *OF_RUN,
    },
}
for unit in TASKS_MAY.keys() - EVERYWHERE:
    TASKS_MAY[unit] |= EVERYWHERE
# At call time only: a trial of a search reports to the storage of its study.
TASKS_LATE = {("callbacks", "study")}
# Imported only in the functions that use them.
HEAVY = {
    "optuna",
    "tokenizers",
    "rich",
    "pandas",
    "transformers",
    "matplotlib",
    "scipy",
    "statsmodels",
}
