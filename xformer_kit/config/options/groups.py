"""The groups of a config: the registries from which it chooses components."""

from xformer_kit.config.options.callbacks import CALLBACKS
from xformer_kit.config.options.logger_options import LOGGERS
from xformer_kit.data.corpus import CORPORA
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.extra import EXTRAS
from xformer_kit.metrics import METRICS
from xformer_kit.model.init_distributions import INITS
from xformer_kit.objective import OBJECTIVES
from xformer_kit.optim import OPTIMIZERS
from xformer_kit.optim.schedules import SCHEDULES
from xformer_kit.plan import KINDS, STACKS
from xformer_kit.registry import Registry

GROUPS: dict[str, Registry] = KINDS | {
    "task": OBJECTIVES,
    "data": CORPORA,
    "tokenizer": TOKENIZERS,
    "init": INITS,
    "optim": OPTIMIZERS,
    "schedule": SCHEDULES,
    "logger": LOGGERS,
}
# Kinds of components nested in options of other components, such as attn.score.
NESTED_GROUPS: dict[str, Registry] = {
    inner.group: inner
    for registry in KINDS.values()
    for name in registry.loaded
    for inner in registry.inner(name).values()
    if inner.group not in GROUPS
}
# Kinds of which a config has any number: {name: options}.
MAPPING_GROUPS: dict[str, Registry] = {
    "extra": EXTRAS,
    "callbacks": CALLBACKS,
    "metrics": METRICS,
}
OWN_FILE = "One of your own needs its file: components=[my_{}.py]."


def registry_at(path: str) -> Registry | None:
    """Returns the registry of the component at a config path: norm, attn.score,
    model.decoder.cross, model.encoder.variants.local.mask; None for the path of anything else.
    """
    first, *inside = path.split(".")
    if first == "model" and len(inside) > 1 and inside[0] in STACKS:
        inside = inside[3:] if inside[1] == "variants" else inside[1:]
        if len(inside) == 1:
            return KINDS.get("attn" if inside == ["cross"] else inside[0])
    nested = ".".join(path.replace(".cross.", ".attn.").split(".")[-2:])
    return GROUPS.get(path) or NESTED_GROUPS.get(nested)
