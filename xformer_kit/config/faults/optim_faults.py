"""Checks of the optimizer against the parameters of the model and the settings of the run."""

from xformer_kit.config.faults.size import meta_model
from xformer_kit.registry import Fault, Faults, Node


def average_faults(config: Node) -> Faults:
    """Yields the faults of two averages of the weights, the optimizer's and another one."""
    from xformer_kit.optim import averages_weights

    if not averages_weights(config["optim"]):
        return
    name, count = config["optim"]["name"], config["checkpoints"]["average"]
    rule = f"averages the weights, and optim '{name}' averages them too"
    if config["ema"]["decay"] is not None:
        yield Fault("ema.decay", rule, config["ema"]["decay"], "Leave it out.")
    if count > 1:
        yield Fault("checkpoints.average", rule, count, "Leave it out.")


def optim_faults(config: Node) -> Faults:
    """Yields the faults of optim.groups in a config whose model is valid. The model is built
    without values if there are groups.
    """
    if not config["optim"].get("groups"):
        return
    from xformer_kit.optim.create import grouping_faults
    from xformer_kit.tensors import parameter_table

    model = meta_model(config)
    named = list(model.named_parameters())
    for fault in grouping_faults(config["optim"], parameter_table(model), named):
        yield fault.at("optim")
