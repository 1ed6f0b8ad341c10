"""Checks of lora against the linear maps of the model."""

from xformer_kit.registry import Fault, Faults, Node, suggestion


def lora_faults(config: Node) -> Faults:
    """Yields the faults of adapters in a config whose model is valid."""
    lora = config.get("lora") or {}
    if not lora.get("rank"):
        return
    import torch

    from xformer_kit.model.build import build_model
    from xformer_kit.model.lora import DEFAULT_MAPS, linear_maps

    if config["model"].get("freeze"):
        rule = "cannot be set with lora.rank: only adapters are trained"
        yield Fault("model.freeze", rule, config["model"]["freeze"], "Leave it out.")
    with torch.device("meta"):
        model = build_model({**config, "lora": {}}, config["model"].get("vocab_size") or 1)
    names = list(dict.fromkeys(name for _, name, _ in linear_maps(model)))
    for name in lora.get("of") or DEFAULT_MAPS:
        if name not in names:
            yield Fault("lora.of", "no linear map has this name", name, suggestion(name, names))
