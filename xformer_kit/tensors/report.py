"""Reports: tensors that modules return from a forward pass, by name."""

from collections import defaultdict

from torch import Tensor, nn

# Name -> tensor. The entries `loss` of all modules are added to the loss; others are summed over
# the micro-batches and ranks of a step, and their names start with that of their module in the
# report of the model, e.g. `decoder.0.ffn.load`.
Report = dict[str, Tensor]
# Of a model with two stacks: the part of `loss` that is of the encoder.
ENCODER_LOSS = "encoder.loss"


def add(report: Report, more: Report, owner: str) -> None:
    """Adds the report of a module to that of the module around it."""
    for name, value in more.items():
        key = name if name == "loss" else f"{owner}.{name}"
        report[key] = report[key] + value if key in report else value


def by_owner(report: Report) -> dict[str, Report]:
    """{"decoder.0.ffn.load": x} -> {"decoder.0.ffn": {"load": x}}; `loss` has the owner ""."""
    owners: dict[str, Report] = defaultdict(dict)
    for name, value in report.items():
        owner, _, key = name.rpartition(".")
        owners[owner][key] = value
    return owners


def figures(model: nn.Module, report: Report) -> dict[str, float]:
    """The numbers of a report that are logged, by name: those that a module's `figures(report)`
    returns, or if it has none, its tensors of one element.
    """
    found: dict[str, float] = {}
    for owner, values in by_owner(report).items():
        module = model.get_submodule(owner)
        numbers = {
            key: float(value.detach()) for key, value in values.items() if value.numel() == 1
        }
        if owner and hasattr(module, "figures"):
            numbers = module.figures(values)  # type: ignore[operator]
        found |= {f"{owner}.{key}" if owner else key: value for key, value in numbers.items()}
    return found
