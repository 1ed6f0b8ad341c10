"""Checks of lora against the linear maps of the model."""

from collections.abc import Collection

from xformer_kit.config.faults.size import meta_model
from xformer_kit.registry import Fault, Faults, Node, suggestion


def lora_faults(config: Node) -> Faults:
    """Yields the faults of adapters in a config whose model is valid."""
    lora = config.get("lora") or {}
    if not lora.get("rank"):
        return
    from xformer_kit.model.lora import DEFAULT_MAPS, linear_maps, selects

    if config["model"].get("freeze"):
        rule = "cannot be set with lora.rank: only adapters are trained"
        yield Fault("model.freeze", rule, config["model"]["freeze"], "Leave it out.")
    model = meta_model({**config, "lora": {}})
    words = lora.get("of") or DEFAULT_MAPS
    maps = {path: getattr(parent, name) for parent, name, path in linear_maps(model)}
    yield from _unselected(words, maps)
    selected = [map_ for path, map_ in maps.items() if any(selects(word, path) for word in words)]
    most = max((min(map_.weight.shape[-2:]) for map_ in selected), default=lora["rank"])
    if lora["rank"] > most:
        rule = "must be at most the smaller side of the largest map that lora.of selects"
        yield Fault("lora.rank", rule, f"{lora['rank']:,} and {most:,}")


def _unselected(words: Collection[str], paths: Collection[str]) -> Faults:
    """Yields the fault of each word that selects no map, or of the layers none of whose maps are
    selected by plain names.
    """
    from xformer_kit.model.lora import selects, unreached_layers

    names = list(dict.fromkeys(path.rpartition(".")[2] for path in paths))
    patterns = list(dict.fromkeys(map(_pattern, paths)))
    unknown = [word for word in words if not any(selects(word, path) for path in paths)]
    for word in unknown:
        known = patterns if "." in word else names
        rule = "no linear map has this name or path"
        yield Fault("lora.of", rule, word, suggestion(word, known))
    layers = unreached_layers(paths, words)
    if layers and not unknown and not any("." in word for word in words):
        others = f" and {len(layers) - 3} other layers" * (len(layers) > 3)
        rule = f"reaches no linear map of {', '.join(layers[:3])}{others}"
        fix = "Add a map of theirs; or, for adapters only in other layers, name paths,"
        fix += f" such as '{patterns[0]}'."
        yield Fault("lora.of", rule, f"[{', '.join(words)}]", fix)


def _pattern(path: str) -> str:
    """Returns the path of a map with * for numbers, such as decoder.*.attn.q."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))
