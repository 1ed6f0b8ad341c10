"""`build`: a model with initial weights from a config. `load`: the trained model of a run
directory.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import xformer_kit.checkpoint as checkpoints
from xformer_kit.config import GROUPS, checked_plan
from xformer_kit.config.faults.size import memory_faults
from xformer_kit.config.options.plain_data import plain
from xformer_kit.config.saved.config_file import MODEL_NODES, check_unchanged
from xformer_kit.config.saved.saved_run import read_run
from xformer_kit.data.tokenizer import load_tokenizer
from xformer_kit.data.tokenizer.published_ids import set_specials
from xformer_kit.files.user_errors import user_errors
from xformer_kit.hub.load import empty_model, weights_dtype
from xformer_kit.model.build import Part, build_model
from xformer_kit.model.lora import merge
from xformer_kit.model.model import Model
from xformer_kit.objective import objective_of
from xformer_kit.pretrained import run_directory
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.text.command_lines import resume


def build(
    config: Mapping[str, Any], vocab_size: int | None = None, source_vocab_size: int | None = None
) -> Model:
    """Returns the model of a config, with initial weights.

    config: what `compose` returned or takes as a mapping, {"attn": {"heads": 8}}.
    vocab_size: needed if the config does not set model.vocab_size. source_vocab_size: of the
    source, if it has its own vocabulary.

    Raises ConfigError with all faults.
    """
    if vocab_size is not None and (not isinstance(vocab_size, int) or vocab_size < 1):
        raise config_error("vocab_size", "must be at least 1 token", got=f"{vocab_size!r}")
    if not isinstance(config, Mapping):
        rule = "needs a config, e.g. compose(['model=decoder']), or a mapping"
        raise config_error("build", rule, got=repr(config))
    config = plain(config)
    if not {"model", *GROUPS} <= config.keys():
        from xformer_kit.config import compose  # Hydra is imported only where a config is composed

        config = compose(config, data=False)
    checked_plan(config, data=False)
    if vocab_size is not None and (model_size := config["model"].get("vocab_size")) not in (
        None,
        vocab_size,
    ):
        raise config_error(
            "model.vocab_size",
            "must equal the vocab_size of build(...)",
            got=f"{model_size} and {vocab_size}",
            fix="Give one of them, or the same size twice.",
        )
    return build_checked(config, vocab_size, source_vocab_size)


def build_checked(
    config: Mapping[str, Any],
    vocab_size: int | None,
    source_vocab_size: int | None,
    part: Part | None = None,
) -> Model:
    """Returns the model of a config without faults, with initial weights; part: see
    `xformer_kit.model.build`. Raises ConfigError, with
    the line, if the constructor of a user's component raises an exception.
    """
    size = vocab_size or config["model"].get("vocab_size")
    if not size:
        raise config_error(
            "model.vocab_size",
            "is the tokenizer's, which is not known here",
            fix="Give build(..., vocab_size=...).",
        )
    registered = [(group, one) for group, found in GROUPS.items() for one in found.loaded.values()]
    with user_errors(registered):
        return build_model(config, size, source_vocab_size, part=part)


def load(run: str | Path, components: Iterable[str] = (), checkpoint: str | int = "best") -> Model:
    """Returns the trained model of a run directory, in evaluation mode, with its `tokenizer`.

    run: or the directory of a published model, or its name on the Hugging Face hub; its weights
    keep their precision, and without a tokenizer.json its `tokenizer` is None.
    components: files that register components of the run.
    checkpoint: best, or last if there is no best one; last; previous; or a step whose checkpoint is
    kept (checkpoints.keep_best, checkpoints.keep_every).

    Raises ConfigError if the run or its checkpoint cannot be loaded.
    """
    run = run_directory(run)
    components = [components] if isinstance(components, str) else list(components)
    config = read_run(run, components, "load(run, components=[FILE])")
    file = _checkpoint(run, components, checkpoint)
    try:
        found = checkpoints.read(file)
    except checkpoints.DamagedError as error:
        raise config_error(
            file,
            f"cannot be read as a checkpoint: {error}",
            fix="Load another one of the run.",
        ) from None
    return restore_model(run, config, found)


def restore_model(
    run: str | Path, config: Mapping[str, Any], checkpoint: checkpoints.Checkpoint
) -> Model:
    """`load`, with the valid config and the checkpoint already read."""
    check_unchanged(run, config, checkpoint.config, MODEL_NODES)
    imported = isinstance(checkpoint, checkpoints.ImportedWeights)
    tokenizer: Any = None
    if not imported or (Path(run) / "tokenizer.json").is_file():
        tokenizer = load_tokenizer(Path(run) / "tokenizer.json")
        set_specials(tokenizer, objective_of(config).specials, Path(run))
    source = _source_tokenizer(Path(run), tokenizer)
    size = config["model"].get("vocab_size") or tokenizer.size
    if fault := next(memory_faults(config, training=False), None):
        raise ConfigError(fault.under(run))
    source_size = None if source is tokenizer else source.size
    if imported:
        model = empty_model(config, size, source_size, weights_dtype(checkpoint.state_dict))
    else:
        model = build_checked(config, size, source_size)
    try:
        model.load_state_dict(checkpoint.state_dict, assign=imported)
        # averaged weights, if there are any: validation used them
        model.load_state_dict(checkpoint.average or {}, strict=False)
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise config_error(
            run,
            f"the weights of its checkpoint must be those of config.yaml's model; {reason}",
        ) from None
    merge(model)
    model.tokenizer, model.source_tokenizer = tokenizer, source  # type: ignore[assignment]
    return model.eval()


def _source_tokenizer(run: Path, tokenizer: Any) -> Any:
    """The tokenizer of the sources: their own if there is one, else `tokenizer`."""
    file = run / "source_tokenizer.json"
    if not file.is_file():
        return tokenizer
    source = load_tokenizer(file)
    source.specials = tokenizer.specials
    return source


def _checkpoint(run: str | Path, components: Iterable[str], name: str | int) -> Path:
    """The file of a checkpoint. Raises ConfigError if there is none."""
    files = checkpoints.checkpoint_files(Path(run) / "checkpoints")
    for each in ("best", "last", "model", "published") if name == "best" else (f"{name}",):
        if each in files:
            return files[each]
    if not files:
        raise config_error(
            run, "has no checkpoint yet", fix=f"Go on with it: {resume(run, components)}"
        )
    raise config_error(run, f"has no checkpoint '{name}'", fix=f"It has: {', '.join(files)}.")
