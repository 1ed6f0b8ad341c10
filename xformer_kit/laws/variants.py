"""The space of compositions: the levels of each factor, and the config of a row of levels.

A factor is a kind of component, whose levels are the components with each of their variants, or the
stacks, the layout or the head. A user's registered components are included.
"""

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

from xformer_kit.config.faults.option_places import option_places
from xformer_kit.config.faults.unused_options import (
    find_unused,
    unused_components,
    unused_option_faults,
)
from xformer_kit.extra import EXTRAS
from xformer_kit.ffn.activations import ACTIVATIONS
from xformer_kit.kernel import cannot_train_on
from xformer_kit.laws.tiny_composition import default_config, faults, tiny_config, tiny_node
from xformer_kit.mask import MASKS
from xformer_kit.norm import NORMS, PointwiseNorm
from xformer_kit.plan import KINDS, has_norms, stacks
from xformer_kit.registry import Fault

CAUSAL, WINDOW = {"name": "causal"}, {"name": "sliding_window", "window": 2}
# The first two tokens attend to nothing.
DISTANT = {"name": "all_of", "of": [CAUSAL, {"name": "not", "of": WINDOW}]}

# The option sets of components that do not define `variants`; a component that is not listed is
# checked with its defaults. If components of two kinds have the same name (a mask and a kernel are
# called chunked), an entry belongs to the one with these options.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "latent": [
        {"kv_rank": 30},
        {
            "q_rank": 5,
            "kv_rank": 7,
            "rope_head_dim": 4,
            "v_head_dim": 9,
            "bias": True,
            "scale": 0.3,
        },
    ],
    "multi_head": [
        {},
        {"bias": True, "kv_heads": 6, "v_norm": "each_head"}
        | {"gate": {"name": "element", "of": "both", "rank": 5, "middle": "silu", "bias": 0.3}},
        {
            "qk_norm": {"name": "head", "groups": 2},
            "kv_heads": 1,
            "scale": 0.2,
            "gate": "constant",
            "v_norm": "head",
        }
        | {"score": {"name": "softmax", "softcap": 3.0, "sinks": True}},
        {"head_dim": 7, "v_head_dim": 11, "clip": 2.0, "qk_norm": "each_head", "scale": 0.3},
        {"qk_norm": {"name": "l2", "after": True}, "scale": "by_layer", "gate": "projected"},
    ],
    "all_of": [{"of": DISTANT["of"]}],
    "any_of": [{"of": [{"name": "sliding_window", "window": 1}, DISTANT]}],
    "not": [{"of": CAUSAL}],
    "rotary": [
        {},
        {
            "rotated_heads": 2,
            "fraction": 0.4,
            "pairing": "interleaved",
            "scaling": {"name": "yarn", "factor": 2.0},
        },
    ],
    "per_head": [{"of": [WINDOW, CAUSAL], "groups": [2, 4]}],
    "chunked": [{"chunk": [3, 1, 5]}],
    "layer": [{}, {"weight": False, "bias": False}, {"unit_offset": True}],
    "rms": [{}, {"unit_offset": True, "cast": "before"}, {"weight": False}],
    "dyt": [{"bias": False}],
    "sinusoidal": [{"layout": "concatenated"}],
    "learned": [{"offset": 2}],
    "alibi": [{"slopes": "geometric", "symmetric": False}],
    "t5": [{"buckets": 6, "longest": 7, "bidirectional": True, "per_layer": True}],
    "shaw": [{"span": 3}],
    "disentangled": [{"buckets": 4, "longest": 9, "norm": True}],
    "linear": [{"heads": 2, "v_head_dim": 7, "bias": True}],
    "gated_delta": [
        {"heads": 2, "v_heads": 4, "head_dim": 6, "v_head_dim": 5, "conv": 3, "negative": True}
    ],
    "dot": [{"scale": 0.02}],  # squares of a residual stream that placement none leaves to grow
    "pre": [{"shared": False, "depth_scaled": True}],
    "ngpt": [{"alpha_init": 0.4, "alpha_scale": 0.1}],
    "mlp": [{"bias": True}],
    "glu": [
        {},
        {
            "activated": "up",
            "clamp": 1.5,
            "soft_clamp": [2.0, 3.0],
            "offset": 1.0,
            "inner_norm": True,
            "scales": True,
        },
    ],
    "moe": [
        {
            "top_k": 1,
            "expert": {"name": "mlp", "bias": True},
            "router": {"name": "softmax", "bias": True, "renormalise": False, "capacity": 0.8},
        },
        {
            "experts": 6,
            "top_k": 3,
            "shared": 2,
            "shared_gate": True,
            "expert": {"name": "glu", "clamp": 1.5, "bias": True},
            "router": {
                "name": "sigmoid",
                "groups": 3,
                "group_limit": 2,
                "group_score": "top2",
                "correction": 0.1,
                "z_loss": 0.1,
            },
        },
        {"router": {"name": "expert_choice"}, "expert": {"name": "glu", "inner_norm": True}},
    ],
}
HALF_FFN = {"ffn": {"multiplier": 0.5}}
LAYOUTS: dict[str, dict[str, Any]] = {
    "sequential": {},
    "shared": {"layers": 3, "unique_layers": 2},
    "parallel": {"layout": [["attn", "ffn"]]},
    "macaron": {"layout": [HALF_FFN, "attn", HALF_FFN]},
    "attention only": {"layout": ["attn"]},
    "two attentions": {"layout": ["attn", {"attn": {"mask": WINDOW, "norm": "layer"}}, "ffn"]},
    "pattern": {
        "pattern": ["base", "local"],
        "variants": {
            "local": {
                "mask": WINDOW,
                "position": {"name": "rotary", "theta": 100.0},
                "ffn": {"width": 23},
            }
        },
    },
    "ends": {
        "first": ["wide"],
        "last": ["bare"],
        "variants": {"wide": {"attn": {"heads": 3}}, "bare": {"layout": ["ffn"]}},
    },
}
# The stacks and their differences; a layout belongs to the output stack.
STACKS: dict[str, dict[str, Any]] = {
    "decoder": {"model": "decoder"},
    "encoder": {"model": "encoder"},
    "encoder-decoder": {"model": "encoder_decoder"},
    "cross alibi": {
        "model": "encoder_decoder",
        "encoder": {"position": "none", "layers": 1},
        "decoder": {"cross": {"heads": 3, "kv_heads": 1, "position": "alibi"}},
    },
    "cross window": {
        "model": "encoder_decoder",
        "encoder": {
            "mask": {"name": "causal"},
            "placement": "post",
            "ffn": {"width": 23},
            "layers": 1,
        },
        "decoder": {  # cross attention to earlier tokens of the source
            "cross": {"mask": {"name": "sliding_window", "window": 4}, "position": "rotary"}
        },
    },
}
HEADS: list[dict[str, Any]] = [
    {},
    {"embed_norm": True, "token_types": 2, "head_transform": True, "head_bias": True}
    | {"logit_scale": "learned"},
    {"embed_dim": 22, "embed_norm": True, "token_types": 2},
    {
        "embed_scale": "sqrt_dim",
        "residual_multiplier": 0.4,
        "head_bias": True,
        "logit_scale": 0.7,
        "logit_softcap": 3.0,
    },
]
NAMED_FACTORS = {"stack": STACKS, "layout": LAYOUTS}  # factors whose levels have names
Row = tuple[tuple[str, int], ...]  # (factor, index of its level) for each factor


@cache
def factors() -> dict[str, list]:
    """Returns the levels of each factor."""
    found: dict[str, list] = {
        kind: [
            tiny_node(kind, {"name": name, **variant})
            for name in registry
            for variant in variants(kind, name)
        ]
        for kind, registry in KINDS.items()
    }
    # A kernel without gradients on a CPU is refused with every component there.
    found["kernel"] = [node for node in found["kernel"] if not cannot_train_on(node["name"], "cpu")]
    extras = ((name, getattr(extra, "variants", [{}])) for name, extra in EXTRAS.items())
    return found | {
        "extra": [{}, *({name: node} for name, variants in extras for node in variants)],
        **{factor: list(levels.values()) for factor, levels in NAMED_FACTORS.items()},
        "head": HEADS,
        "tie_embeddings": [True, False],
        "share_embeddings": [True, False],
    }


def variants(kind: str, name: str) -> list[dict[str, Any]]:
    """Returns the option sets that the laws are checked with: the component's `variants`, or those
    listed here, and one for each variant of the components that may be nested in it.
    """
    registry = KINDS[kind]
    options = registry.options(name).keys()
    listed = [variant for variant in VARIANTS.get(name, ()) if variant.keys() <= options]
    own = vars(registry[name]).get("variants", listed)
    return [*(own or [{}]), *_nested_variants(kind, name)]


def _nested_variants(kind: str, name: str) -> Iterator[dict[str, Any]]:
    """Yields the `variants` of nested components, such as scores, if the component is the first one
    with this option.
    """
    components = KINDS[kind]
    for option, nested in components.inner(name).items():
        first = next(other for other in components if option in components.inner(other))
        if first != name or nested in KINDS.values():
            continue
        for inner in nested:
            # Not of networks, such as experts, which are components of this kind.
            if nested[inner] not in components.loaded.values():
                for variant in vars(nested[inner]).get("variants", ()):
                    yield {option: {"name": inner} | variant}


def config_of(row: Row) -> dict[str, Any]:
    """Returns the config of a row, without options that have no effect; activations are chosen in
    turn.
    """
    return _config_and_faults(row)[0]


def _config_and_faults(row: Row) -> tuple[dict[str, Any], list[Fault] | None]:
    """Returns the config of a row, and its faults if they are known."""
    chosen = {factor: factors()[factor][level] for factor, level in row}
    stack, layout = chosen.pop("stack"), chosen.pop("layout")
    output = "encoder" if stack["model"] == "encoder" else "decoder"
    if stack["model"] == "encoder_decoder" and "layout" in layout:
        layout = layout | {"layout": with_cross(layout["layout"])}
    chosen["attn"] = _without_rotated_norms(chosen["attn"], chosen["position"]["name"])
    if not MASKS.create(chosen["mask"]).sees_future:  # `symmetric` applies to later tokens
        chosen["position"] = {k: v for k, v in chosen["position"].items() if k != "symmetric"}
    chosen["placement"], layout = _without_unused_options(chosen["placement"], layout)
    chosen |= stack | {output: {**stack.get(output, {}), **layout}} | chosen.pop("head")
    if "activation" in chosen["ffn"]:
        fitting = [name for name in ACTIVATIONS if not _erases_activations(name, chosen)]
        activation = fitting[sum(level for _, level in row) % len(fitting)]
        chosen["ffn"] = {**chosen["ffn"], "activation": activation}
    return _with_defaults_if_unused(tiny_config(**chosen))


def _without_unused_options(
    placement: dict[str, Any], layout: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns placement and layout without options that have no effect: `shared` without parallel
    sublayers, `scale_residual` without networks, and norms if the placement has none.
    """
    entries, placement = layout.get("layout", ()), {**placement}
    if not any(isinstance(entry, list) for entry in entries):
        placement.pop("shared", None)
    if entries == ["attn"]:
        placement.pop("scale_residual", None)
    if entries and not has_norms(placement):
        layout = layout | {"layout": [_without_norm(entry) for entry in entries]}
    return placement, layout


def _without_norm(entry: Any) -> Any:
    """Returns an entry of a layout without its norm."""
    if not isinstance(entry, dict):
        return entry
    return {
        sublayer: {key: value for key, value in options.items() if key != "norm"}
        for sublayer, options in entry.items()
    }


def _with_defaults_if_unused(
    config: dict[str, Any],
) -> tuple[dict[str, Any], list[Fault] | None]:
    """Returns the config with the defaults of options and components that no layer uses, provided
    that this changes no other fault; and its faults if they are known.
    """
    plans = stacks(config)
    places = list(option_places(config, plans))
    components = [fault.path for fault in unused_components(places) if fault.path in KINDS]
    defaults = default_config("_".join(plan.name for plan in plans)) if components else {}
    changed = config | {kind: defaults[kind] for kind in components}
    for place, key, *_ in find_unused(config, places):
        kind = place.kind
        if place.path == kind and kind not in components:
            option = key.partition(".")[0]
            default = KINDS[kind].defaults(place.node["name"])[option]
            changed[kind] = {**changed[kind], option: default}
    if changed == config:
        return config, None
    before, after = faults(config), faults(changed)
    same = all(
        set(unused_option_faults(one, plans)).issuperset(only)
        for one, own, others in ((config, before, after), (changed, after, before))
        if (only := set(own) - set(others))
    )
    return (changed, after) if same else (config, before)


def _without_rotated_norms(attn: dict[str, Any], position: str) -> dict[str, Any]:
    """Returns the attention; without a rotation, its norms are not applied after the rotation."""
    norms = attn.get("qk_norm")
    rotates = "rotate" in KINDS["position"][position].enters
    if rotates or not isinstance(norms, dict) or not norms.get("after"):
        return attn
    return {**attn, "qk_norm": {**norms, "after": False}}


def _erases_activations(activation: str, chosen: dict[str, Any]) -> bool:
    """Whether an activation that is 0, or a power, near 0 would erase the small activations of a
    tiny model. After a norm that scales them to about 1 it does not.
    """
    norm = chosen["norm"]["name"]
    if activation in ("relu2", "star_relu"):
        return norm == "none"
    pointwise = isinstance(NORMS[norm], type) and issubclass(NORMS[norm], PointwiseNorm)
    small = norm in ("none", "l2") or pointwise or chosen["placement"]["name"] == "none"
    return small and activation in ("hardshrink", "softshrink", "tanhshrink")


def with_cross(layout: list) -> list:
    """Returns a layout with cross attention after each attention, or in parallel with it."""
    crossed = []
    for entry in layout:
        crossed.append(["attn", "cross", *entry[1:]] if isinstance(entry, list) else entry)
        crossed += ["cross"] if entry == "attn" else []
    return crossed


def random_row(draw: random.Random) -> Row:
    """Returns a random row, which may be refused."""
    return tuple((factor, draw.randrange(len(levels))) for factor, levels in factors().items())


def row_faults(row: Row) -> list[Fault]:
    """Returns why a row is refused. A row whose layout has no networks is also refused if it would
    be with networks; otherwise a network would count as composed with components it never meets.
    """
    config, found = _config_and_faults(row)
    found = faults(config) if found is None else found
    layout = factors()["layout"][dict(row)["layout"]]
    if found or layout.get("layout") != ["attn"]:
        return found
    return row_faults(tuple((dict(row) | {"layout": 0}).items()))


def row_label(row: Row) -> str:
    """Returns the names of a row's components, stack and layout, joined by hyphens."""
    levels = factors()
    components = [levels[kind][level]["name"] for kind, level in row if kind in KINDS]
    names = [[*NAMED_FACTORS[factor]][level] for factor, level in row if factor in NAMED_FACTORS]
    return "-".join([*components, *names])
