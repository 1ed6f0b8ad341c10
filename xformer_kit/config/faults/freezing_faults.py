"""Checks of model.freeze and model.unfreeze_at against the parameters of the model."""

from difflib import get_close_matches

from xformer_kit.config.faults.size import meta_model
from xformer_kit.data.run_length import known_steps
from xformer_kit.registry import Fault, Faults, Node


def freezing_faults(config: Node) -> Faults:
    """Yields the faults of frozen parameters in a config whose model is valid. The model is built
    without values if there is a pattern.
    """
    model = config["model"]
    patterns, until = model.get("freeze"), model.get("unfreeze_at")
    if not patterns:
        return
    from xformer_kit.optim.freezing import Freezing, named_parameters, unmatched

    built = meta_model(config)
    names = list(dict.fromkeys(name for name, _ in named_parameters(built)))
    modules = [name for name, _ in built.named_modules() if name]
    for pattern in unmatched(patterns, names):
        near = get_close_matches(pattern, [*names, *modules], n=3, cutoff=0.3)
        fix = f"The nearest are: {', '.join(near or names[:3])}."
        yield Fault("model.freeze", "matches no parameter of the model", pattern, fix)
    if len(Freezing(built, patterns).parameters) == sum(1 for _ in built.parameters()):
        rule = "leaves no parameter to train"
        yield Fault("model.freeze", rule, patterns, "Leave a pattern out.")
    steps = known_steps(config)
    if until is not None and steps is not None and until >= steps:
        rule = "must be below the steps of the run"
        yield Fault("model.unfreeze_at", rule, f"{until:,} and {steps:,}", "Try null: never.")
