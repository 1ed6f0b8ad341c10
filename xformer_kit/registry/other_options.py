"""Unknown options, and the options that other libraries call by another name."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, cast

from xformer_kit.registry.command_lines import for_shell, override_text
from xformer_kit.registry.fault import Fault, format_value
from xformer_kit.registry.messages import SYNONYMS, alternatives, did_you_mean

# Option of another library -> config path of ours, or an override if the value is another one too.
# A key with a dot is an option of that node only.
OTHER_OPTIONS = {
    "accumulate_grad_batches": "trainer.accumulate",
    "activation_function": "ffn.activation",
    "adam_beta1": "optim.betas=[0.9,0.95]",
    "adam_beta2": "optim.betas=[0.9,0.95]",
    "adam_epsilon": "optim.eps",
    "attention_bias": "attn.bias",
    "attention_dropout": "attn.dropout",
    "attention_probs_dropout_prob": "attn.dropout",
    "attn_pdrop": "attn.dropout",
    "auto_find_batch_size": "trainer.accumulate=auto",
    "base": "position.theta",
    "beta1": "optim.betas=[0.9,0.95]",
    "beta2": "optim.betas=[0.9,0.95]",
    "bf16": "trainer.precision=bf16-mixed",
    "block_size": "data.seq_len",
    "checkpoint_interval": "trainer.checkpoint_every",
    "ckpt": "resume",
    "ckpt_path": "resume",
    "clip_grad_norm": "trainer.gradient_clip_val",
    "context_length": "data.seq_len",
    "d_ff": "ffn.width",
    "d_model": "model.dim",
    "dataloader_num_workers": "data.num_workers",
    "dataset": "data",
    "dtype": "trainer.precision",
    "device": "trainer.accelerator",
    "early_stopping": "callbacks.early_stopping.patience=5",
    "epochs": "trainer.max_epochs",
    "eval_every": "trainer.val_every",
    "eval_interval": "trainer.val_every",
    "eval_steps": "trainer.val_every",
    "eval_strategy": "trainer.val_every=200",
    "evaluation_strategy": "trainer.val_every=200",
    "experiment_name": "name",
    "fast_dev_run": "debug=fast",
    "ffn_dim": "ffn.width",
    "fp16": "trainer.precision=16-mixed",
    "full_determinism": "trainer.deterministic",
    "global_batch_size": "data.batch_size",
    "grad_accum_steps": "trainer.accumulate",
    "grad_clip": "trainer.gradient_clip_val",
    "gradient_accumulation_steps": "trainer.accumulate",
    "head_size": "attn.head_dim",
    "hidden_act": "ffn.activation",
    "hidden_dim": "model.dim",
    "hidden_dropout_prob": "model.dropout",
    "hidden_size": "model.dim",
    "hparams_search": "study=search",
    "init_std": "init.std",
    "initializer_range": "init.std",
    "intermediate_size": "ffn.width",
    "label_smoothing_factor": "task.label_smoothing",
    "layer_norm_eps": "norm.eps",
    "layer_norm_epsilon": "norm.eps",
    "learning_rate": "optim.lr",
    "log_interval": "trainer.log_every_n_steps",
    "logging_steps": "trainer.log_every_n_steps",
    "lora_alpha": "lora.alpha",
    "lora_dropout": "lora.dropout",
    "lora_r": "lora.rank",
    "lora_target_modules": "lora.of",
    "lr_scheduler": "schedule",
    "lr_scheduler_type": "schedule",
    "max_grad_norm": "trainer.gradient_clip_val",
    "max_iters": "trainer.max_steps",
    "max_length": "data.seq_len",
    "max_position_embeddings": "data.seq_len",
    "max_seq_len": "data.seq_len",
    "max_seq_length": "data.seq_len",
    "max_train_steps": "trainer.max_steps",
    "metric_for_best_model": "checkpoints.metric=val/loss",
    "micro_batch_size": "data.batch_size",
    "mlp_ratio": "ffn.expand",
    "model.decoder_layers": "model.decoder.layers",
    "model.encoder_layers": "model.encoder.layers",
    "n_ctx": "data.seq_len",
    "n_embd": "model.dim",
    "n_head": "attn.heads",
    "n_heads": "attn.heads",
    "n_inner": "ffn.width",
    "n_kv_heads": "attn.kv_heads",
    "n_layer": "model.layers",
    "n_layers": "model.layers",
    "n_positions": "data.seq_len",
    "n_query_groups": "attn.kv_heads",
    "neftune_noise_alpha": "extra.embedding_noise.alpha",
    "no_cuda": "trainer.accelerator=cpu",
    "num_attention_heads": "attn.heads",
    "num_dataloader_workers": "data.num_workers",
    "num_experts": "ffn.experts",
    "num_heads": "attn.heads",
    "num_hidden_layers": "model.layers",
    "num_key_value_heads": "attn.kv_heads",
    "num_layers": "model.layers",
    "num_local_experts": "ffn.experts",
    "num_train_epochs": "trainer.max_epochs",
    "optimizer": "optim",
    "out_dir": "hydra.run.dir",
    "output_dir": "hydra.run.dir",
    "per_device_eval_batch_size": "data.batch_size",
    "per_device_train_batch_size": "data.batch_size",
    "r": "lora.rank",
    "report_to": "logger",
    "resid_pdrop": "model.dropout",
    "resume_from_checkpoint": "resume",
    "rms_norm_eps": "norm.eps",
    "rope_theta": "position.theta",
    "rotary_emb_base": "position.theta",
    "save_every": "trainer.checkpoint_every",
    "save_interval": "trainer.checkpoint_every",
    "save_steps": "trainer.checkpoint_every",
    "save_strategy": "trainer.checkpoint_every=200",
    "save_top_k": "checkpoints.keep_best",
    "save_total_limit": "checkpoints.keep_best",
    "scheduler": "schedule",
    "sequence_length": "data.seq_len",
    "steps": "trainer.max_steps",
    "target_modules": "lora.of",
    "task_name": "name",
    "tie_word_embeddings": "model.tie_embeddings",
    "torch_compile": "trainer.compile",
    "train_batch_size": "data.batch_size",
    "use_cpu": "trainer.accelerator=cpu",
    "val_check_interval": "trainer.val_every",
    "wandb_project": "logger.project",
    "warmup_iters": "schedule.warmup",
    "warmup_steps": "schedule.warmup",
    "wd": "optim.weight_decay",
    "weight_tying": "model.tie_embeddings",
    "sliding_window": "mask.window",
    "window_size": "mask.window",
    "act": "ffn.activation",
    "callbacks.early_stopping.monitor": "callbacks.early_stopping.metric",
    "attn.window": "mask.window",
    "attn.flash": "kernel=sdpa",
    "attn_implementation": "kernel=sdpa",
    "use_flash_attention": "kernel=sdpa",
    "checkpoints.monitor": "checkpoints.metric",
    "checkpoints.every_n_train_steps": "trainer.checkpoint_every",
    "ff_mult": "ffn.expand",
    "ffn.mult": "ffn.expand",
    "model.compile": "trainer.compile",
    "tie_weights": "model.tie_embeddings",
    "use_wandb": "logger=wandb",
    "wandb": "logger=wandb",
    "depth": "model.layers",
    "dropout_rate": "model.dropout",
    "decoder_layers": "model.decoder.layers",
    "encoder_layers": "model.encoder.layers",
    "eval_iters": "trainer.limit_val_batches",
    "ffn.hidden": "ffn.width",
    "ffn.hidden_dim": "ffn.width",
    "ffn.hidden_size": "ffn.width",
    "gpus": "trainer.devices",
    "pos": "position",
    "torch_dtype": "trainer.precision",
    "num_experts_per_tok": "ffn.top_k",
    "seed_everything": "seed",
    "trainer.batch_size": "data.batch_size",
    "trainer.lr": "optim.lr",
    "trainer.seed": "seed",
}


# Choice of another library or of Lightning -> what sets the same here.
OTHER_CHOICES = {
    "debug=default": "debug=fast",
    "debug=fdr": "debug=fast",
    "debug=limit": "trainer.limit_train_batches=0.2",
    "debug=profiler": "debug=profile",
    "trainer=cpu": "trainer.accelerator=cpu",
    "trainer=ddp_sim": "trainer=ddp trainer.devices=2 trainer.accelerator=cpu",
    "trainer=gpu": "trainer.accelerator=cuda",
    "trainer=many_gpus": "trainer=ddp trainer.devices=4",
    "trainer=mps": "trainer.accelerator=mps",
    "attn=causal_self_attention": "mask=causal",
    "attn=flash": "kernel=sdpa",
    "attn=flash_attention": "kernel=sdpa",
    "attn=flash_attention_2": "kernel=sdpa",
    "attn=local": "mask=sliding_window",
    "attn=sdpa": "kernel=sdpa",
    "attn=sparse": "mask=strided",
    "debug=True": "debug=fast",
    **{f"ffn={name}": f"ffn=mlp ffn.activation={name}" for name in ("gelu", "relu", "silu")},
    "model=bart": "task=text_infilling",
    "model=bert": "task=masked_language_modeling",
    "model=gpt": "model=decoder",
    "model=gpt2": "model=decoder",
    "model=llama": "model=decoder",
    "model=ngpt": "experiment=ngpt",
    "model=roberta": "task=masked_language_modeling",
    "model=seq2seq": "task=seq2seq data=dates",
    "model=t5": "task=seq2seq data=dates",
    "model=transformer": "model=decoder",
}
# Names of published models start with one of these; the page has the lines of their architectures.
PUBLISHED = re.compile(
    r"(llama|gpt|pythia|mi[sx]tral|qwen|gemma|phi|olmo|opt|falcon|deepseek|bert|roberta)", re.I
)
PUBLISHED_PAGE = "docs/guide/architectures.md"
CORPUS_OF_SUFFIX = {"jsonl": "jsonl", "json": "jsonl", "parquet": "parquet", "tsv": "tsv"}
# Options of other libraries without one of ours: (rule, fix).
_RECOMPUTED = (
    "activations are kept, not computed again",
    "For less memory leave it out and set trainer.accumulate=4, or lower data.batch_size.",
)
_EVALUATED = ("a run trains and validates", "Leave it out; xformer evaluate RUN evaluates a run.")
_TOKENS = (
    "the length of a run is a number of steps",
    "Divide by data.batch_size * data.seq_len and set trainer.max_steps.",
)
WITHOUT_OPTION = {
    "activation_checkpoint": _RECOMPUTED,
    "activation_checkpointing": _RECOMPUTED,
    "checkpoint_activations": _RECOMPUTED,
    "gradient_checkpointing": _RECOMPUTED,
    "do_eval": _EVALUATED,
    "do_predict": _EVALUATED,
    "do_train": _EVALUATED,
    "test": _EVALUATED,
    "train": _EVALUATED,
    "greater_is_better": ("is called checkpoints.mode here", "Set it to max or min."),
    "load_best_model_at_end": (
        "the best checkpoint and the last one are both kept",
        "Leave it out; xformer evaluate RUN --checkpoint best evaluates the best one.",
    ),
    "dry_run": (
        "only a study has a dry run",
        "Set study.dry_run=true for a study; for a run --cfg job prints the config and xformer"
        " describe its cost.",
    ),
    "max_tokens": _TOKENS,
    "train_tokens": _TOKENS,
    "overwrite_output_dir": ("each run has a directory of its own", "Leave it out."),
    "push_to_hub": ("a run stays in its directory, nothing is uploaded", "Leave it out."),
    "quantize": (
        "weights are not quantized",
        "For less memory leave it out and set trainer.precision=bf16-true.",
    ),
    "always_save_checkpoint": (
        "the last checkpoint is always kept",
        "Leave it out; trainer.checkpoint_every=200 sets how often it is written.",
    ),
    "logger.offline": (
        "is set by an environment variable",
        "Leave it out, and write WANDB_MODE=offline in front of the command.",
    ),
    "attn.causal": ("is decided by the mask", "Set mask=causal or mask=full."),
    "preset": (
        "an architecture is composed from components",
        "Leave it out; xformer components lists them.",
    ),
    "warmup_ratio": (
        "the warm-up is a number of steps",
        "Multiply by trainer.max_steps and set schedule.warmup.",
    ),
}


def unknown_option(
    path: str,
    kind: str,
    name: str,
    key: str,
    options: Iterable[str],
    elsewhere: Mapping[str, list[str]] | None = None,
    value: Any = None,
) -> Fault:
    """Returns the fault of an unknown option.

    elsewhere: option of another component or node -> its config paths. value: the option's value.
    """
    options, elsewhere = list(dict.fromkeys(options)), elsewhere or {}
    of_node = f"{path}.{key}"
    if path and (of_node in OTHER_OPTIONS or of_node in WITHOUT_OPTION):
        return cast(Fault, other_option(of_node, value))
    if kind != "settings" and key in ("type", "kind"):
        return Fault(of_node, f"is called {path} here", value, f"Try {path}={value}.")
    if of_node == "data.path" and isinstance(value, str) and value:
        rule = f"{kind} '{name}' reads no file"
        typed = for_shell(f"data.path={override_text(value)}")
        return Fault(of_node, rule, value, f"Try data={corpus_of(value)} {typed}.")
    usual = OTHER_OPTIONS.get(key, "").partition("=")[0]
    word = usual.rpartition(".")[2]
    places = elsewhere.get(word, []) if path or word not in options else []
    is_elsewhere = key not in elsewhere and (word not in options or not path)
    is_unchosen = any("=" in place for place in places)  # an option of other components
    if (
        is_elsewhere
        and not is_unchosen
        and (
            fault := other_option(key, value, usual if usual in places else next(iter(places), ""))
        )
    ):
        return replace(fault, path=f"{path}.{key}".strip("."))
    settings = kind == "settings"
    rule = "the config has no such key" if settings else f"{kind} '{name}' has no option '{key}'"
    has = f"It has: {', '.join(options)}." if options else "It has no options."
    if key in elsewhere:
        known = _with_value(elsewhere[key], value)
        hint, has = "", f"{has if path else ''} Try {alternatives(known)}.".strip()
    elif word in options or did_you_mean(key, options):
        hint = f"Did you mean '{word}'? " if word in options else did_you_mean(key, options)
    elif close := [word] * bool(places) or get_close_matches(key, elsewhere, n=1, cutoff=0.75):
        there = alternatives(elsewhere[close[0]])
        hint = f"Did you mean {there}? " if settings else f"Did you mean '{close[0]}' of {there}? "
    else:
        hint, has = "", f"{has} Leave it out."
    return Fault(f"{path}.{key}".strip("."), rule, fix=f"{hint}{has}")


def other_option(key: str, value: Any = None, ours: str = "") -> Fault | None:
    """Returns the fault of an option of another library, with our option and the value; None for a
    key that is none. ours: the config path of our option; "" is that of OTHER_OPTIONS.
    """
    is_mapping = isinstance(value, Mapping)  # of optimizer.lr=1e-3, for example
    if key in WITHOUT_OPTION and not is_mapping:
        rule, fix = WITHOUT_OPTION[key]
        if value is False and (rule, fix) == _RECOMPUTED:
            fix = "Leave it out."
        return Fault(key, rule, format_value(value), fix)
    if not (other := OTHER_OPTIONS.get(key)):
        return None
    usual, _, needed = other.partition("=")
    ours = ours or usual
    text = needed or value_text(ours, value)
    got = "" if value is None else format_value(value)
    if value is False and needed:  # fp16=false, early_stopping=false, wandb=false
        fix = "Try logger=csv." if ours == "logger" else "It is off unless set: leave it out."
        return Fault(key, f"is called {ours} here", got, fix)
    if is_mapping and value:
        inside = [f"{ours}.{key}={override_text(each)}" for key, each in value.items()]
        chosen = [f"{ours}={needed}"] * bool(needed)
        return Fault(key, f"is called {ours} here", got, f"Try {' '.join([*chosen, *inside])}.")
    if ours == "resume" and (value in (True, "best", "last") or str(value).endswith(".ckpt")):
        return Fault(key, "is called resume here", got, "Try resume=RUN, the directory of a run.")
    return Fault(key, f"is called {ours} here", got, f"Try {ours}={text}." if text else "")


def value_text(ours: str, value: Any) -> str:
    """Returns the value of an option of another library as one of ours; "" for one that does not
    carry over.
    """
    if value is None or not (
        isinstance(value, (bool, int, float)) or re.fullmatch(r"[\w./:-]+", str(value))
    ):
        return ""
    text = str(format_value(value)).strip("'")
    if ours == "trainer.precision":
        return SYNONYMS.get(text.rpartition(".")[2], text)  # torch.bfloat16
    return re.sub(r"^(train|val)_", r"\1/", text) if ours.endswith(".metric") else text


def _with_value(places: list[str], value: Any) -> list[str]:
    """Returns config paths of options with the value; choices such as data=text as they are."""
    if any("=" in place for place in places):
        return places
    if isinstance(value, list):
        return [f"{place}={for_shell(override_text(value))}" for place in places]
    return [f"{place}={text}" if (text := value_text(place, value)) else place for place in places]


def corpus_of(file: str) -> str:
    """Returns the corpus that reads a file with this name."""
    found = (CORPUS_OF_SUFFIX.get(suffix) for suffix in file.lower().split(".")[1:])
    return next(filter(None, found), "text")
