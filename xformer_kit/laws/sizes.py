"""Sizes of the package's components in tiny compositions, in place of their defaults.

A user's component is checked with its own defaults, or with the option sets of its `variants`.
"""

from typing import Any

KV_HEADS = {"heads": 6, "kv_heads": 3, "head_dim": 10}
HEADS = {"heads": 6, "head_dim": 10}
RECURRENT = HEADS | {"chunk": 4}
# Kind -> component -> sizes.
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "attn": {
        "multi_head": KV_HEADS,
        "differential": KV_HEADS,
        "compositional": KV_HEADS,
        "cosine": KV_HEADS,
        "distance": KV_HEADS,
        "exclusive": KV_HEADS,
        "laser": KV_HEADS,
        "persistent_memory": KV_HEADS | {"count": 2},
        "latent": HEADS,
        "lambda": HEADS,
        "linformer": HEADS | {"rank": 4},
        "nystrom": HEADS | {"landmarks": 3},
        "orthoformer": HEADS | {"landmarks": 3},
        "gated_delta": RECURRENT,
        "linear": RECURRENT,
        "performer": RECURRENT,
        "retention": RECURRENT,
    },
    "mask": {
        "sliding_window": {"window": 5},
        "dilated": {"window": 5},
        "chunked": {"chunk": 4},
        "global_tokens": {"count": 2},
        "fixed": {"stride": 4, "summary": 1},
        "strided": {"stride": 4},
        "random_blocks": {"block": 2, "count": 2},
    },
    "position": {"dynamic": {"width": 19}, "fire": {"width": 19}},
    "placement": {"gated_streams": {"rank": 4}},
    "ffn": {"mlp": {"width": 19}, "glu": {"width": 19}, "moe": {"width": 19, "experts": 5}},
    "kernel": {"sdpa": {"block": 2}, "varlen": {"block": 2}},
}


def sizes(kind: str, name: str) -> dict[str, Any]:
    """Returns the sizes of a component; none for a user's."""
    return SIZES.get(kind, {}).get(name, {})
