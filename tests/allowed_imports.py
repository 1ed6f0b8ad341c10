"""Which folder of xformer_kit and of tasks may import which others."""

KINDS = ("attention", "mask", "position", "norm", "placement", "ffn")
# A folder may import those of the layers before its own, inside functions too. A folder that is in
# DIVIDED counts without its subfolders, which have places of their own.
DIVIDED = {"config", "data", "study"}
LAYERS: list[set[str]] = [
    {"launcher", "text", "typed"},
    {"registry"},
    {"files", "metrics", "tensors"},
    {"mask", "position", "norm", "placement", "ffn", "extra", "kernel"},
    {"attention", "data", "generate", "objective", "optim"},
    {"plan", "zoo", "data/corpus", "data/tokenizer"},
    {"model", "data/preparation"},
    {"eject", "hub"},
    {"config/options"},
    {"config/faults"},
    {"config/saved"},
    {"config/hydra"},
    {"config/line"},
    {"checkpoint_shards", "config"},
    {"checkpoint", "inspect", "study"},
    {"pretrained"},
    {"api", "export", "init_source", "json_schema", "study/report", "with_loss"},
    {"__init__"},
    {"__main__", "laws", "parity"},
    {"tasks"},  # the types in tasks/__init__.py
    {"tasks/process"},
    {"tasks/generation"},
    {"tasks/evaluation", "tasks/modules"},
    {"tasks/logging"},
    {"tasks/checkpoints", "tasks/study"},
    {"tasks/callbacks"},
    {"tasks/run"},
    {"tasks/cli"},
    {"tasks/entry"},
]
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
