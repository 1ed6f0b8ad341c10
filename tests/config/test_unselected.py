"""An option of a component that is not selected: the fault names the one that is, and what has the
option.
"""

from refusals import refusals, refusals_with

HEADS = (
    "heads, kv_heads, head_dim, v_head_dim, bias, qk_norm, v_norm, clip, clip_normed, gate, scale,"
    " score, dropout, keys"
)
THETA = (
    "position=sinusoidal, position=transformer_xl, position=rotary, position=polar or position=xpos"
)
WINDOW = "has no option 'window'. It has no options. Try {0}=sliding_window or {0}=dilated."
FAULTS = {
    # Of other components of the kind, where the path is that of the option.
    "position=none position.theta=1": (
        f"position.theta: position 'none' has no option 'theta'. It has no options. Try {THETA}."
    ),
    "attn.gate.rank=4": (
        "attn.gate.rank: gate 'none' has no option 'rank'. It has no options. Try"
        " attn.gate=head, attn.gate=element or attn.gate=projected."
    ),
    "mask=full mask.window=5": f"mask.window: mask 'full' {WINDOW.format('mask')}",
    "model.decoder.mask.window=5": (
        f"model.decoder.mask.window: mask 'causal' {WINDOW.format('model.decoder.mask')}"
    ),
    "model.decoder.pattern=[near] model.decoder.variants.near.mask.window=8": (
        "model.decoder.variants.near.mask.window: mask 'causal'"
        f" {WINDOW.format('model.decoder.variants.near.mask')}"
    ),
    "mask=all_of mask.of=[{name:causal,window:3}]": (
        f"mask.of[0].window: mask 'causal' {WINDOW.format('mask')}"
    ),
    "logger=csv logger.project=x": (
        "logger.project: logger 'csv' has no option 'project'. It has no options. Try logger=wandb."
    ),
    "attn=linear attn.kv_heads=2": (
        "attn.kv_heads: attn 'linear' has no option 'kv_heads'. It has: heads, head_dim,"
        " v_head_dim, feature_map, normalise, eps, bias, chunk. Try attn=differential,"
        " attn=multi_head, attn=compositional, attn=cosine, attn=distance, attn=exclusive,"
        " attn=laser or attn=persistent_memory."
    ),
    # Of a component of another kind.
    "attn.theta=1e6": (
        f"attn.theta: attn 'multi_head' has no option 'theta'. It has: {HEADS}. Try"
        " position.theta=1000000.0."
    ),
    "optim.warmup=3": (
        "optim.warmup: optim 'adamw' has no option 'warmup'. It has: lr, weight_decay,"
        " betas, eps, groups, layer_decay. Try schedule.warmup=3."
    ),
    # Of none.
    "attn.qk_norm.eps=1": (
        "attn.qk_norm.eps: qk_norm 'none' has no option 'eps'. It has no options. Leave it out."
    ),
}


test_an_option_of_another_component = refusals(FAULTS)


test_a_name_of_another_library = refusals_with(
    {
        "position=none position.base=1": "position.base: is called position.theta here; got 1.",
        "position.rope_theta=1": "position.rope_theta: is called position.theta here; got 1. Try",
        "attn.rope_theta=1": "attn.rope_theta: is called position.theta here; got 1.",
        "d_model=64": "d_model: is called model.dim here; got 64. Try model.dim=64.",
        "model.d_model=64": "model.d_model: is called model.dim here; got 64. Try model.dim=64.",
        "model.position=rotary": "checkpoint_activations, encoder, decoder. Try position=rotary.",
        "trainer.steps=3": "trainer.steps: is called trainer.max_steps here; got 3. Try"
        " trainer.max_steps=3.",
    }
)
