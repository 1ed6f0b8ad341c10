"""Types of the config of a model; see `Config`.

Written by `python -m xformer_kit.inspect.table`.
"""
# fmt: off
# ruff: noqa: I001

from __future__ import annotations

from typing import Any, Literal, TypedDict


AttnName = Literal["multi_head", "linear", "latent", "differential", "mean", "dot", "gated_delta",
    "compositional", "cosine", "distance", "exclusive", "fourier", "lambda", "laser", "linformer",
    "nystrom", "orthoformer", "performer", "persistent_memory", "retention", "short_conv",
    "all_attention", "average", "cosine_similarity", "diff", "diff_attn",
    "differential_transformer", "euclidean", "favor", "favor+", "favor_plus", "fft", "fnet",
    "gated_conv", "gated_deltanet", "gdn", "gqa", "grouped_query", "l2_attention", "l2_distance",
    "lambda_layer", "lambda_networks", "lambdanet", "lfm2_conv", "linear_attention",
    "linear_transformer", "mem_kv", "mha", "mla", "mqa", "msr", "multi_head_latent", "multi_query",
    "multi_scale_retention", "multihead", "nystroem", "nystromformer", "retnet", "scaled_cosine",
    "search_and_retrieval", "single_head", "uniform", "xsa"]


class Attn(TypedDict, total=False):  # a component of attn
    name: AttnName
    heads: int
    kv_heads: int | None
    head_dim: int | None
    bias: bool | list[Literal['q', 'k', 'v', 'o']] | tuple[Literal['q', 'k', 'v', 'o'], ...]
    scale: Literal['by_layer'] | float | None
    weight: bool
    eps: float
    dropout: float
    v_heads: int | None
    v_head_dim: int | None
    conv: int | None
    decay: Literal['powers', 'spaced'] | bool
    negative: bool
    gate: bool | AttnGate | AttnGateName
    chunk: int
    rope_head_dim: int | None
    kv_rank: int | None
    q_rank: int | None
    norm_eps: float | None
    feature_map: Literal['elu', 'relu', 'softmax', 'taylor', 'identity']
    normalise: bool
    qk_norm: AttnQkNorm | AttnQkNormName | bool
    v_norm: Literal['none', 'head', 'each_head', 'projection']
    clip: float | None
    clip_normed: bool
    score: AttnScore | AttnScoreName
    keys: Literal['own', 'earlier']
    retrievals: int
    choice_dim: int | None
    start: float
    largest: float
    over: Literal['head', 'all']
    scope: int | None
    cap: float
    rank: int
    share: Literal['none', 'heads', 'key_value']
    landmarks: int
    iterations: int
    features: int | None
    estimates: Literal['softmax', 'relu']
    seed: int
    count: int
    width: int


MaskName = Literal["causal", "full", "sliding_window", "prefix", "all_of", "any_of", "per_head",
    "not", "chunked", "global_tokens", "dilated", "fixed", "random_blocks", "random_keys",
    "strided", "and", "autoregressive", "bidirectional", "block_local", "blocked", "chunk",
    "complement", "dilated_sliding_window", "dilated_window", "global", "global_attention", "heads",
    "intersection", "local_chunks", "mixed_heads", "none", "or", "prefix_causal", "prefix_lm",
    "random_pattern", "random_tokens", "sliding", "sparse_fixed", "sparse_strided", "swa",
    "triangular", "union", "window"]


class Mask(TypedDict, total=False):  # a component of mask
    name: MaskName
    of: list[Any] | tuple[Any, ...] | Mask | MaskName
    groups: list[int] | tuple[int, ...] | None
    window: int | None
    causal: bool
    chunk: int | list[int] | tuple[int, ...]
    count: int
    step: int
    stride: int
    merged: bool
    summary: int
    block: int
    seed: int
    alike: bool
    probabilities: list[float] | tuple[float, ...]


PositionName = Literal["rotary", "learned", "sinusoidal", "alibi", "t5", "none", "shaw",
    "transformer_xl", "disentangled", "cope", "curves", "dynamic", "fire", "forgetting", "kerple",
    "polar", "xpos", "absolute", "bucketed", "contextual", "data_dependent_alibi", "deberta", "dpb",
    "dynamic_position_bias", "forget_gates", "fox", "length_extrapolatable", "nope",
    "polar_coordinate", "pope", "relative_bias", "relative_position_representations", "rope",
    "sine", "wpe", "xl"]


class Position(TypedDict, total=False):  # a component of position
    name: PositionName
    offset: int
    theta: float
    layout: Literal['interleaved', 'concatenated']
    up_to_theta: bool
    span: int | float
    per_layer: bool
    buckets: int
    longest: int | None
    content_to_position: bool
    position_to_content: bool
    norm: bool
    slopes: Literal['press', 'geometric']
    exponent: float
    symmetric: bool
    factor: float
    bidirectional: bool | None
    rotated_heads: int | None
    fraction: float
    pairing: Literal['half', 'interleaved']
    scaling: PositionScaling | PositionScalingName
    curves: int
    width: int | None
    hidden: int
    log: bool
    activation: Literal['silu', 'relu']
    rate: float
    threshold: float
    gates: Literal['token', 'pair']
    gate_dim: int
    start: Literal['zero', 'uniform'] | float
    kernel: Literal['log', 'power']
    gamma: float


NormName = Literal["rms", "layer", "none", "l2", "dyt", "derf", "scale", "DynamicErf",
    "DynamicTanh", "dynamic_erf", "dynamic_tanh", "identity", "l2_norm", "l2norm", "layer_norm",
    "layernorm", "ln", "normalize", "rms_norm", "rmsnorm", "scale_norm", "scalenorm", "unit"]


class Norm(TypedDict, total=False):  # a component of norm
    name: NormName
    eps: float
    weight: bool
    bias: bool
    unit_offset: bool
    cast: Literal['after', 'before']
    alpha: float
    shift: float


PlacementName = Literal["pre", "post", "sandwich", "ngpt", "output", "pre_and_sum", "none",
    "deepnorm", "layer_scale", "attention_residuals", "dense_former", "gated_streams", "gru",
    "hyper_connections", "lime", "mv_split", "normformer", "orthogonal", "resi_dual", "reversible",
    "rezero", "ResiDual", "attn_aggregated_residuals", "attn_res", "attnres", "deep_norm",
    "denseformer", "depth_weighted_average", "dwa", "gated_multi_residual", "gru_gate", "gtrxl",
    "hc", "hyper_connection", "integrate_layers", "layer_integrated_memory", "layerscale",
    "mean_split", "mean_variance_split", "mv_split_residual", "no_norm", "norm_former", "olmo2",
    "orthog_residual", "orthogonal_residual", "oru", "post_ln", "post_norm", "post_sublayer",
    "postnorm", "pre_ln", "pre_norm", "prenorm", "re_zero", "reordered", "reordered_norm",
    "resdual", "rev", "revnet", "sandwich_norm"]


class Placement(TypedDict, total=False):  # a component of placement
    name: PlacementName
    alpha_init: float
    alpha_scale: float | None
    shared: bool
    depth_scaled: bool
    residual: bool
    alpha: float | None
    beta: float | None
    start: float | None
    streams: int
    rank: int
    bias: float
    relu: bool
    dynamic: bool
    mixing: Literal['free', 'doubly_stochastic']
    iterations: int | None
    scale_residual: bool
    eps: float


FfnName = Literal["glu", "mlp", "moe", "xielu", "dense", "experts", "feed_forward", "geglu",
    "mixture_of_experts", "reglu", "swiglu"]


class Ffn(TypedDict, total=False):  # a component of ffn
    name: FfnName
    width: int | None
    expand: float | None
    multiple_of: int | None
    activation: Literal['relu', 'relu2', 'gelu', 'gelu_tanh', 'gelu_quick', 'silu', 'tanh',
        'sigmoid', 'mish', 'identity', 'star_relu', 'smelu', 'solu', 'elu', 'selu', 'celu', 'relu6',
        'leaky_relu', 'softplus', 'softsign', 'softshrink', 'hardshrink', 'tanhshrink', 'hardtanh',
        'hardsigmoid', 'hardswish', 'logsigmoid']
    bias: bool
    inner_norm: bool
    scales: bool
    dropout: float
    activated: Literal['gate', 'up']
    clamp: float | None
    soft_clamp: list[float] | tuple[float, ...] | None
    offset: float
    experts: int
    top_k: int
    expert: FfnExpert | FfnExpertName
    router: FfnRouter | FfnRouterName
    shared: int
    shared_gate: bool


KernelName = Literal["auto", "sdpa", "flex", "varlen", "chunked", "fla", "reference", "chunkwise",
    "eager", "flash_attn_varlen", "flash_linear_attention", "flash_varlen", "flex_attention",
    "math", "naive"]


class Kernel(TypedDict, total=False):  # a component of kernel
    name: KernelName
    block: int | None


AttnQkNormName = Literal["none", "head", "each_head", "projection", "l2", "key", "k_norm",
    "per_head", "unit"]


class AttnQkNorm(TypedDict, total=False):  # a component of attn.qk_norm
    name: AttnQkNormName
    after: bool
    groups: int
    bias: bool


AttnGateName = Literal["none", "constant", "head", "element", "projected", "aoa",
    "attention_on_attention", "elementwise", "head_scale", "headwise", "on_attn"]


class AttnGate(TypedDict, total=False):  # a component of attn.gate
    name: AttnGateName
    of: Literal['input', 'output', 'both']
    rank: int | None
    middle: Literal['none', 'silu']
    activation: Literal['sigmoid', 'silu']
    bias: float | None


AttnScoreName = Literal["softmax", "sigmoid", "cog", "entmax", "gumbel", "hard", "inverted",
    "relu2", "residual", "selective", "talking_heads", "top_k", "alpha_entmax", "cog_attention",
    "entmax15", "explicit_sparse", "gumbel_softmax", "hardmax", "inverted_attention", "one_hot",
    "realformer", "relu_squared", "residual_attention", "selective_attention", "sigmoid_attention",
    "slot", "slot_attention", "sparse_topk", "sparsemax", "squared_relu", "talking", "th", "topk"]


class AttnScore(TypedDict, total=False):  # a component of attn.score
    name: AttnScoreName
    softcap: float | None
    sinks: bool
    plus_one: bool
    bias: float | None
    alpha: float
    temperature: float
    hard: bool
    eps: float
    keep_first: bool
    logits: bool
    probabilities: bool
    scaled: bool
    k: int


PositionScalingName = Literal["none", "linear", "dynamic", "yarn", "llama3", "longrope", "default",
    "dynamic_ntk", "long_rope", "null", "pi", "position_interpolation", "su"]


class PositionScaling(TypedDict, total=False):  # a component of position.scaling
    name: PositionScalingName
    factor: float
    original: int | None
    beta_fast: float
    beta_slow: float
    mscale: float | None
    mscale_all: float | None
    attention_factor: float | None
    truncate: bool
    low: float
    high: float
    short: list[float] | tuple[float, ...]
    long: list[float] | tuple[float, ...]


FfnExpertName = Literal["glu", "mlp", "dense", "feed_forward", "geglu", "reglu", "swiglu"]


class FfnExpert(TypedDict, total=False):  # a component of ffn.expert
    name: FfnExpertName
    activation: Literal['relu', 'relu2', 'gelu', 'gelu_tanh', 'gelu_quick', 'silu', 'tanh',
        'sigmoid', 'mish', 'identity', 'star_relu', 'smelu', 'solu', 'elu', 'selu', 'celu', 'relu6',
        'leaky_relu', 'softplus', 'softsign', 'softshrink', 'hardshrink', 'tanhshrink', 'hardtanh',
        'hardsigmoid', 'hardswish', 'logsigmoid']
    activated: Literal['gate', 'up']
    clamp: float | None
    soft_clamp: list[float] | tuple[float, ...] | None
    offset: float
    bias: bool
    inner_norm: bool
    scales: bool
    dropout: float


FfnRouterName = Literal["expert_choice", "softmax", "sigmoid", "round_robin", "ec", "in_turn",
    "roundrobin", "token_choice", "top_k", "topk"]


class FfnRouter(TypedDict, total=False):  # a component of ffn.router
    name: FfnRouterName
    bias: bool
    z_loss: float
    renormalise: bool
    scale: float
    groups: int
    group_limit: int
    group_score: Literal['max', 'top2']
    balance: float
    correction: float | None
    capacity: float | None


class ExtraOptions(TypedDict, total=False):  # a component of extra
    alpha: float
    count: int
    weight: float
    way: Literal['factor', 'matrix']
    rate: float
    tokens: int
    mix: Literal['fixed', 'learned', 'token']
    at: list[Literal['A', 'B', 'C', 'D']] | tuple[Literal['A', 'B', 'C', 'D'], ...]
    residual: bool
    capacity: float
    every: int
    loss: float
    channels: int


class Extra(TypedDict, total=False):  # components by name
    deep_embed: ExtraOptions
    embedding_noise: ExtraOptions
    future_tokens: ExtraOptions
    reinject: ExtraOptions
    stochastic_depth: ExtraOptions
    token_shift: ExtraOptions
    unet: ExtraOptions
    unit_weights: ExtraOptions
    value_residual: ExtraOptions
    backout: ExtraOptions
    canon: ExtraOptions
    memory_tokens: ExtraOptions
    mixture_of_depths: ExtraOptions
    residual_factors: ExtraOptions
    smear: ExtraOptions
    value_embeddings: ExtraOptions


class Variant(TypedDict, total=False):  # differences from the stack
    attn: Attn | AttnName
    mask: Mask | MaskName
    position: Position | PositionName
    norm: Norm | NormName
    placement: Placement | PlacementName
    ffn: Ffn | FfnName
    kernel: Kernel | KernelName
    cross: Attn | AttnName


class Stack(TypedDict, total=False):  # differences from the shared components
    layers: int | None
    unique_layers: int | None
    pattern: list[str] | tuple[str, ...] | None
    first: list[str] | tuple[str, ...] | None
    last: list[str] | tuple[str, ...] | None
    variants: dict[str, Variant] | None
    layout: list[Any] | None
    cross: Attn | AttnName
    attn: Attn | AttnName
    mask: Mask | MaskName
    position: Position | PositionName
    norm: Norm | NormName
    placement: Placement | PlacementName
    ffn: Ffn | FfnName
    kernel: Kernel | KernelName
