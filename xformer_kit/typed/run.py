"""Types of the config of a run; see `Config`.

Written by `python -m xformer_kit.inspect.table`.
"""
# fmt: off
# ruff: noqa: I001

from __future__ import annotations

from typing import Any, Literal, TypedDict

from xformer_kit.typed.model import (Attn, AttnName, Extra, Ffn, FfnName, Kernel, KernelName, Mask,
    MaskName, Norm, NormName, Placement, PlacementName, Position, PositionName, Stack)


TaskName = Literal["language_modeling", "masked_language_modeling", "seq2seq", "classification",
    "denoising", "text_infilling", "mixture_of_denoisers", "prefix_language_modeling", "regression",
    "causal_lm", "classify", "clm", "glue", "infilling", "lm", "masked_lm", "mlm", "mod",
    "next_token", "plm", "prefix_lm", "regress", "s2s", "sequence_classification",
    "sequence_regression", "sequence_to_sequence", "span_corruption", "ul2"]


class Task(TypedDict, total=False):  # a component of task
    name: TaskName
    label_smoothing: float
    z_loss: float
    decoded: int
    test: bool
    beam: int
    rate: float
    span: float
    sentinels: int
    permute_sentences: bool
    regular: float
    sequential: float
    extreme: float
    mask: float
    random: float
    whole_word: bool
    pool: Literal['first', 'last', 'mean'] | None
    classes: list[int | str] | tuple[int | str, ...]


DataName = Literal["pydoc", "text", "jsonl", "csv", "parquet", "hub", "pairs", "tsv", "dates",
    "names", "cogs", "mixture", "copy", "reverse", "sort", "selective_copy", "addition", "parity",
    "dyck", "recall", "induction", "stdlib_code", "scan", "COGS", "SCAN", "add",
    "associative_recall", "babel_dates", "babel_names", "bitext", "blend", "blended", "brackets",
    "comma_separated", "datasets", "file", "files", "hf", "huggingface", "induction_heads",
    "json_lines", "mix", "mixed", "moses", "mqar", "ndjson", "parallel", "parallel_text",
    "parentheses", "reversal", "selective_copying", "sorting", "tab", "tabs", "txt"]


class Data(TypedDict, total=False):  # a component of data
    name: DataName
    seq_len: int
    valid_len: int | None
    batch_size: int
    batch_tokens: int | None
    too_long: Literal['error', 'drop', 'truncate'] | None
    documents: bool
    num_workers: int
    seed: int | None
    cache: str | None
    formats: list[Literal['full', 'long', 'medium', 'short']] | tuple[Literal['full', 'long',
        'medium', 'short'], ...]
    first: int
    last: int
    held_out: float
    pairs: int
    examples: int
    examples_seed: int
    kinds: list[Literal['territories', 'languages']] | tuple[Literal['territories', 'languages'],
        ...]
    path: str
    source: str
    second: str | None
    target: str
    text: str | None
    valid: float | None
    test: float
    valid_path: str | None
    test_path: str | None
    delimiter: str
    dataset: str
    subset: str | None
    train_split: str
    valid_split: str | None
    test_split: str | None
    of: dict[str, Any]
    weights: dict[str, Any] | None
    temperature: float
    valid_source: str | None
    valid_target: str | None
    test_source: str | None
    test_target: str | None
    columns: list[int | str] | tuple[int | str, ...]
    length: int
    shortest: int | None
    test_length: int | None
    vocabulary: int
    marked: int
    answer: Literal['reversed', 'plain']
    steps: bool
    types: int
    depth: int
    power: float
    filler: Literal['random', 'blank']
    split: Literal['simple', 'length', 'length_cutoff_26', 'addprim_jump', 'addprim_turn_left']


TokenizerName = Literal["bpe", "byte", "char", "pretrained", "unigram", "wordpiece", "word", "auto",
    "byte_bpe", "byte_pair", "bytes", "character", "characters", "hf", "hub", "huggingface", "utf8",
    "white_space", "whitespace", "word_piece", "words"]


class Tokenizer(TypedDict, total=False):  # a component of tokenizer
    name: TokenizerName
    shared: bool
    vocab_size: int | None
    coverage: float
    sample: int
    lowercase: bool
    unknown: Literal['error', 'token']
    path: str
    min_count: int


InitName = Literal["gpt2", "llama", "lecun", "xavier", "kaiming", "small", "depth_scaled", "ds",
    "ds_init", "fan_in", "glorot", "gpt", "he", "kaiming_normal", "lecun_normal", "small_init",
    "smallinit"]


class Init(TypedDict, total=False):  # a component of init
    name: InitName
    std: float
    depth_scaled: bool
    zero_output: bool
    cut: float | None
    embedding: float | None
    depth: Literal['stack', 'layer']
    output: float | None
    alpha: float


OptimName = Literal["adamw", "adam", "sgd", "muon", "adafactor", "adamw_8bit", "lion",
    "schedule_free", "soap", "adam8bit", "adam_w", "adamw8bit", "adamw_schedule_free", "momentum",
    "schedulefree", "torch.optim.Adafactor", "torch.optim.Adam", "torch.optim.AdamW",
    "torch.optim.SGD"]


class Optim(TypedDict, total=False):  # a component of optim
    name: OptimName
    lr: float
    weight_decay: float
    betas: list[float] | tuple[float, ...]
    eps: float
    groups: dict[str, Any] | None
    layer_decay: float
    momentum: float
    nesterov: bool
    iterations: int
    scale: Literal['original', 'match_rms_adamw']
    per_head: bool
    normalise: float | None
    other: Optim | OptimName
    beta2_decay: float
    clip: float
    power: float
    frequency: int
    max_side: int


ScheduleName = Literal["cosine", "linear", "constant", "polynomial", "wsd", "inverse_sqrt",
    "one_cycle", "1cycle", "constant_with_warmup", "cos", "cosine_annealing",
    "cosine_with_restarts", "cosine_with_warmup", "flat", "inverse_square_root",
    "linear_with_warmup", "none", "onecycle", "poly", "polynomial_decay", "rsqrt", "trapezoidal",
    "warmup_stable_decay"]


class Schedule(TypedDict, total=False):  # a component of schedule
    name: ScheduleName
    warmup: int | float
    min: float
    restarts: int
    power: float
    decay: float
    shape: Literal['linear', 'sqrt', 'cosine', 'exponential']
    first: float


LoggerName = Literal["wandb", "csv", "tensorboard", "mlflow", "none"]


class Logger(TypedDict, total=False):  # a component of logger
    name: LoggerName
    project: str
    entity: str | None
    group: str | None
    job_type: str | None
    tags: list[str] | tuple[str, ...] | None
    run_name: str | None
    x_axis: Literal['step', 'tokens']
    log_model: Literal['all'] | bool
    tracking_uri: str | None
    experiment: str
    wandb: dict[str, Any]
    csv: dict[str, Any]
    tensorboard: dict[str, Any]
    mlflow: dict[str, Any]
    none: dict[str, Any]


class CallbacksOptions(TypedDict, total=False):  # a component of callbacks
    every: int
    of: list[Literal['attention', 'bias', 'mask']] | tuple[Literal['attention', 'bias', 'mask'],
        ...]
    layers: list[int] | tuple[int, ...] | None
    heads: list[int] | tuple[int, ...] | None
    length: int
    patience: int
    metric: str
    mode: Literal['min', 'max'] | None
    min_delta: float


class Callbacks(TypedDict, total=False):  # components by name
    norms: CallbacksOptions
    pictures: CallbacksOptions
    early_stopping: CallbacksOptions


class MetricsOptions(TypedDict, total=False):  # a component of metrics
    k: int
    bins: int
    norm: Literal['l1', 'l2', 'max']


class Metrics(TypedDict, total=False):  # components by name
    accuracy: MetricsOptions
    top_k_accuracy: MetricsOptions
    calibration_error: MetricsOptions
    f1: MetricsOptions
    matthews: MetricsOptions
    pearson: MetricsOptions
    spearman: MetricsOptions
    word_error_rate: MetricsOptions
    character_error_rate: MetricsOptions


class Ema(TypedDict, total=False):  # settings
    decay: float | None


class Checkpoints(TypedDict, total=False):  # settings
    average: int
    keep_best: int
    metric: str
    mode: Literal['min', 'max'] | None
    keep_every: int | None
    asynchronous: bool


class InitFrom(TypedDict, total=False):  # settings
    run: str | None
    allow: list[str] | tuple[str, ...] | None


class Lora(TypedDict, total=False):  # settings
    rank: int | None
    alpha: float | None
    dropout: float
    of: list[str] | tuple[str, ...] | None


ModelName = Literal["decoder", "encoder", "encoder_decoder"]


class Model(TypedDict, total=False):  # settings
    name: ModelName
    dim: int
    layers: int
    unique_layers: int | None
    sharing: Literal['sequence', 'cycle', 'cycle_rev']
    loops: int
    train_loops: list[int] | tuple[int, ...] | int | None
    dropout: float
    parametrization: Literal['standard', 'mup']
    base_dim: int | None
    residual_multiplier: float
    vocab_size: int | None
    vocab_multiple: int
    tie_embeddings: bool
    share_embeddings: bool
    embed_scale: Literal['sqrt_dim'] | float
    embed_dim: int | None
    embed_map_first: bool
    embed_norm: bool
    token_types: int
    head_transform: bool
    head_activation: Literal['relu', 'relu2', 'gelu', 'gelu_tanh', 'gelu_quick', 'silu', 'tanh',
        'sigmoid', 'mish', 'identity', 'star_relu', 'smelu', 'solu', 'elu', 'selu', 'celu', 'relu6',
        'leaky_relu', 'softplus', 'softsign', 'softshrink', 'hardshrink', 'tanhshrink', 'hardtanh',
        'hardsigmoid', 'hardswish', 'logsigmoid']
    head_transform_bias: bool
    head_bias: Literal['fixed'] | bool
    logit_scale: Literal['learned', 'per_root_dim'] | float
    logit_softcap: float | None
    max_len: int | None
    final_norm: bool | None
    seed: int | None
    freeze: list[str] | tuple[str, ...] | None
    unfreeze_at: int | None
    checkpoint_activations: Literal['none', 'block', 'selective'] | int
    encoder: Stack | None
    decoder: Stack | None


TrainerName = Literal["ddp", "default", "fsdp", "hsdp"]


class Trainer(TypedDict, total=False):  # settings
    name: TrainerName
    accelerator: Literal['auto', 'cpu', 'gpu', 'cuda', 'mps']
    strategy: Literal['auto', 'ddp', 'fsdp', 'hsdp']
    devices: int | list[int] | tuple[int, ...] | str
    num_nodes: int
    precision: Literal['auto', '32-true', 'bf16-mixed', '16-mixed', 'fp8-mixed', 'bf16-true',
        '16-true', '64-true']
    max_epochs: int | None
    max_steps: int | None
    max_time: str | dict[str, Any] | None
    limit_train_batches: int | float | None
    limit_val_batches: int | float | None
    overfit_batches: int
    num_sanity_val_steps: int
    log_every_n_steps: int
    enable_checkpointing: bool
    enable_progress_bar: bool
    enable_model_summary: bool
    gradient_clip_val: float | None
    gradient_clip_algorithm: Literal['norm', 'value']
    deterministic: Literal['warn'] | bool | None
    benchmark: bool | None
    inference_mode: bool
    detect_anomaly: bool
    max_tokens: int | None
    accumulate: Literal['auto'] | int
    val_every: int | None
    checkpoint_every: int | None
    on_nonfinite: Literal['stop', 'skip']
    rank_timeout: float | None
    compile: Literal['auto'] | bool
    profile: int
    sample: bool
    decode_tokens: int
    reshard_after_forward: bool
    gather_dtype: Literal['bf16', 'fp32'] | None
    reduce_dtype: Literal['bf16', 'fp32'] | None
    sync_gradients: Literal['last', 'each']
    cpu_offload: bool
    shard_ranks: int | None


class Config(TypedDict, total=False):  # differences from the default run
    name: str
    seed: int
    model: Model | ModelName
    attn: Attn | AttnName
    mask: Mask | MaskName
    position: Position | PositionName
    norm: Norm | NormName
    placement: Placement | PlacementName
    ffn: Ffn | FfnName
    kernel: Kernel | KernelName
    task: Task | TaskName
    data: Data | DataName
    tokenizer: Tokenizer | TokenizerName
    init: Init | InitName
    optim: Optim | OptimName
    schedule: Schedule | ScheduleName
    logger: Logger | LoggerName | list[LoggerName]
    trainer: Trainer | TrainerName
    ema: Ema
    checkpoints: Checkpoints
    init_from: InitFrom
    lora: Lora
    extra: Extra
    callbacks: Callbacks
    metrics: Metrics
    experiment: str | list[str]
    components: list[str]
