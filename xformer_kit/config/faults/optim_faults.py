"""Checks of the optimizer against the parameters of the model and the settings of the run."""

from typing import Any

from xformer_kit.config.faults.size import meta_model
from xformer_kit.config.options.trainer_schema import SHARDED
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


def _optimizers(config: Node) -> dict[str, Any]:
    """Returns {path: node or name} of the optimizer, and of those within it."""
    nodes = {"optim": config["optim"]}
    for key, group in (config["optim"].get("groups") or {}).items():
        if group.get("optim"):
            nodes[f"optim.groups.{key}.optim"] = group["optim"]
    others = {f"{path}.other": node["other"] for path, node in nodes.items() if "other" in node}
    return nodes | {path: node for path, node in others.items() if node}


def sharded_faults(config: Node) -> Faults:
    """Yields the faults of optimizers that cannot train parts of parameters, with
    trainer.strategy=fsdp and hsdp.
    """
    from xformer_kit.optim import OPTIMIZERS

    if (strategy := config["trainer"].get("strategy")) not in SHARDED:
        return
    for path, node in _optimizers(config).items():
        name = node if isinstance(node, str) else node["name"]
        if not getattr(OPTIMIZERS[name], "trains_parts", True):
            rule = f"cannot train the parts of parameters of trainer.strategy={strategy}"
            yield Fault(path, rule, name, "Try optim=adamw.")


def width_faults(config: Node, task: bool) -> Faults:
    """Yields the faults of model.parametrization=mup in a config whose model is valid: what has no
    rule. The model is built without values. task: whether the optimizer is checked.
    """
    from xformer_kit.optim import OPTIMIZERS
    from xformer_kit.optim.create import has_width_rule
    from xformer_kit.plan.parametrization import has_plain_scale
    from xformer_kit.tensors.parametrization import unstated

    if config["model"].get("parametrization", "standard") == "standard":
        return
    rule = "parametrization=mup"
    for name in unstated(meta_model(config))[:3]:
        fix = "State it in its module: parameter_info = {NAME: hidden('dim', 'dim')}, by its axes."
        yield Fault("model.parametrization", f"needs the axes of {name}", "mup", fix)
    for path, node in (("attn", config["attn"]),):
        if node.get("scale", 0) is None and not has_plain_scale(node):
            name = node["qk_norm"]["name"]
            fix = "Set attn.scale, or attn.qk_norm=head."
            yield Fault(f"{path}.qk_norm", f"has a scale of its own, and {rule} no rule", name, fix)
    for path, node in (_optimizers(config) if task else {}).items():
        name = node if isinstance(node, str) else node["name"]
        if not has_width_rule(name):
            fix = f"Choose one of {', '.join(filter(has_width_rule, OPTIMIZERS))}."
            yield Fault(path, f"has no rule for the rates of model.{rule}", name, fix)
        if not isinstance(node, str) and node.get("per_head") and config["attn"].get("head_dim"):
            broken = f"has matrices that do not grow with the width, with attn.head_dim, and {rule}"
            yield Fault(f"{path}.per_head", f"{broken} no rule", True, "Leave one out.")
