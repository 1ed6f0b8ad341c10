"""Starts a run from the weights of another run, `init_from=RUN`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tasks import Config, State
from tasks.logging.files import replace_text
from tasks.logging.summary import diverged
from xformer_kit.checkpoint import MODEL, PUBLISHED
from xformer_kit.config import config_hash, read_config
from xformer_kit.config.faults.data_faults import form_of
from xformer_kit.config.line.to_overrides import to_same_architecture
from xformer_kit.config.saved.init_from_source import source_of
from xformer_kit.data.tokenizer import TOKENIZERS, load_tokenizer
from xformer_kit.data.tokenizer.published_ids import FILE as SPECIAL_IDS
from xformer_kit.files.saved_files import read_object
from xformer_kit.init_source import digest, read_source, source_shapes, weights_of
from xformer_kit.model.build import build_model
from xformer_kit.model.lora import ADAPTERS, adapter_paths
from xformer_kit.model.transfer import PATH, Transfer, plan_transfer, rows_of_tokens
from xformer_kit.objective import objective_of
from xformer_kit.pretrained import KEPT, TOKENIZER, copy_kept
from xformer_kit.registry import ConfigError, Fault, Faults, config_error
from xformer_kit.tensors import canonical, parameter_table, training_buffers
from xformer_kit.text.command_lines import value
from xformer_kit.text.tensor_lists import not_copied

INIT_FROM = "init_from.json"  # in a run's directory: what its weights started from


def start_from(config: Config, task: Any, objective: Any, run_dir: Path | None = None) -> str:
    """Loads the weights of init_from.run into a task's new model and returns a line on it; writes
    init_from.json into `run_dir`. Raises ConfigError if they do not fit, or are not those with
    which the run began.
    """
    # Rows that are not copied have initial values, which a model that will be sharded lacks.
    model = task.model if task.build_part is None else task.build_part()
    allow = config["init_from"].get("allow")
    run, file, saved, checkpoint, weights = read_source(config)
    tokens = _tokens(run, saved, objective)
    vocabularies = vocabulary_tensors(model)
    rows = {
        name: _rows(tokens[side], min(size, len(weights.get(name, ()))))
        for name, (size, side) in vocabularies.items()
    }
    transfer = plan_transfer(model, weights, rows, allow, _added(model))
    unfit = _vocabulary_faults(config, tokens, rows, weights, vocabularies)
    if faults := [*unfit, *transfer.faults]:
        raise ConfigError(_with_architecture(faults, config, str(run)))
    entry = _origin(
        config["init_from"]["run"], run, file, checkpoint.global_step, weights, transfer, rows
    )
    entry["new_rows"] = {
        name: _new_rows(pairs, len(tokens[vocabularies[name][1]][0]))
        for name, pairs in rows.items()
        if name in transfer.copied
    }
    if run_dir is not None:
        _check_or_write(run_dir / INIT_FROM, entry)
        has_own_rows = bool(objective.tokenizer.specials)
        if not has_own_rows and tokens["tokenizer"][0] == tokens["tokenizer"][1]:
            copy_kept(run, run_dir, (*KEPT, SPECIAL_IDS))
    task.load_weights(transfer.copied)
    return _line(entry, [*model.state_dict(), *weights])


def check_shapes(config: Config) -> None:
    """Raises ConfigError if the tensors of init_from.run do not fit the model of a config, as far
    as that is known before the data are read: with any vocabulary.
    """
    run, weights = source_shapes(config)
    size = config["model"].get("vocab_size") or _vocab_size(config, run)
    with torch.device("meta"):
        model = build_model(config, size, None if config["tokenizer"]["shared"] else size)
    rows = {
        name: [(at, at) for at in range(min(size, len(weights.get(name, ()))))]
        for name, (size, _) in vocabulary_tensors(model).items()
    }
    allow = config["init_from"].get("allow")
    # A pattern may be of a tensor that depends on the vocabularies of the data.
    faults = plan_transfer(model, weights, rows, allow, _added(model)).faults
    if faults := [fault for fault in faults if fault.path == PATH]:
        raise ConfigError(_with_architecture(faults, config, str(run)))


def _vocab_size(config: Config, run: Path) -> int:
    """Returns the number of tokens of a run. Raises ConfigError for one without a tokenizer, such
    as an imported model, if that of the config is fitted: its ids would be other tokens.
    """
    if (file := run / TOKENIZER).is_file():
        return load_tokenizer(file).size
    size = read_config(run)["model"].get("vocab_size")
    if not size or TOKENIZERS[config["tokenizer"]["name"]].fit_splits:
        rule = f"has no {TOKENIZER}"
        fix = "Save the model's tokenizer there, or choose one, such as tokenizer=byte."
        raise config_error(config["init_from"]["run"], rule, fix=fix)
    return size


def _added(model: Any) -> list[str]:
    """The tensors that the weights of a run may lack: adapters, and what only training reads."""
    adapters = [f"{path}.{name}" for path in adapter_paths(model) for name in ADAPTERS]
    return [*adapters, *training_buffers(model)]


def _with_architecture(faults: Sequence[Fault], config: Config, run: str) -> Faults:
    """Yields the faults; that of tensors with what to change for the architecture of the run."""
    change = to_same_architecture(config, run)
    hint = f"For the architecture of the run {change}. " if change else ""
    for fault in faults:
        yield replace(fault, fix=f"{hint}{fault.fix}".strip()) if fault.path == PATH else fault


def origin(run_dir: Path) -> State | None:
    """Returns the content of init_from.json; None without the file."""
    try:
        return read_object(run_dir / INIT_FROM, {"sha256": str}, needs=("sha256",))
    except FileNotFoundError:
        return None


def begun_with(config: Config, run_dir: Path) -> str:
    """Returns the sha256 of the weights that a run starts from: those that its directory records,
    else those of init_from.run; "" for a run without it.
    """
    has_source = (config.get("init_from") or {}).get("run")
    entry = origin(run_dir) if has_source else None
    return entry["sha256"] if entry else weights_of(config)


def _tokens(run: Path, saved: Config, objective: Any) -> dict[str, tuple[list[Any], list[Any]]]:
    """Returns {"tokenizer" or "source_tokenizer": (own tokens, tokens of the run)}; saved: its
    config. A run without a tokenizer has the own tokens.
    """
    specials = () if (run / SPECIAL_IDS).is_file() else objective_of(saved).specials
    found = {}
    for side in ("tokenizer", "source_tokenizer"):
        own = getattr(objective, side)
        tokens = [*own.pieces(), *own.specials]
        files = (run / f"{side}.json", run / TOKENIZER)
        file = next(filter(Path.is_file, files), None)
        others = [*load_tokenizer(file).pieces(), *specials] if file else tokens
        found[side] = (tokens, others)
    return found


def _rows(tokens: tuple[list[Any], list[Any]], size: int) -> list[tuple[int, int]]:
    """Returns the rows that are copied, see `rows_of_tokens`. For one vocabulary these are all
    `size` rows that both tensors have, also those that no token has: their logits are in the
    softmax if model.vocab_size is above the tokenizer's.
    """
    own, others = tokens
    return [(at, at) for at in range(size)] if own == others else rows_of_tokens(own, others)


def _new_rows(pairs: Sequence[tuple[int, int]], count: int) -> tuple[int, int]:
    """Returns (tokens without a row of the run, tokens) of a tensor of a vocabulary of `count`
    tokens; pairs: the rows that are copied.
    """
    return count - sum(own < count for own, _ in pairs), count


def vocabulary_tensors(model: Any) -> dict[str, tuple[int, str]]:
    """Returns {name: (rows, tokenizer)} of each tensor with a row for each token."""
    source_embed = getattr(model, "source_embed", None)
    separate = model.two_stacks and source_embed is not None
    source = nn.ModuleList([source_embed, model.get_submodule("encoder")] if separate else [])
    of_source = {id(parameter) for parameter in source.parameters()}
    parameters = {canonical(name): parameter for name, parameter in model.named_parameters()}
    found = {}
    for name, info in parameter_table(model).items():
        if info.axes and info.axes[0] in ("vocab", "source_vocab"):
            parameter = parameters[name]
            side = "source_tokenizer" if id(parameter) in of_source else "tokenizer"
            found[name] = len(parameter), side
    if "head.bias" in dict(model.named_buffers()):  # model.head_bias=fixed
        found["head.bias"] = len(model.head.bias), "tokenizer"
    return found


def _vocabulary_faults(
    config: Config,
    tokens: Mapping[str, tuple[list[Any], list[Any]]],
    rows: Mapping[str, list[tuple[int, int]]],
    weights: Mapping[str, Tensor],
    vocabularies: Mapping[str, tuple[int, str]],
) -> Faults:
    """Yields the fault of each tokenizer that does not begin with the run's tokens, unless the
    tensors of its vocabulary are allowed by name.
    """
    run, allow = config["init_from"]["run"], config["init_from"].get("allow") or ()
    for side, both in tokens.items():
        names = [n for n in rows if n in weights and vocabularies[n][1] == side and n not in allow]
        own, others = ([t for t in each if isinstance(t, bytes)] for each in both)
        count = min(len(own), len(others))
        if not names or own[:count] == others[:count]:
            continue
        names_of_both = ",".join([*allow, *names])
        fix = (
            f"With 'init_from.allow=[{names_of_both}]', the tokens that both have keep their rows."
        )
        if form_of(config["data"]) == "labelled":
            rule = "has tokens of its own, and must begin with those of init_from.run"
            yield Fault("data", rule, config["data"]["name"], fix)
            continue
        file = value(str(source_of(run)[0] / TOKENIZER))
        fix = f"Try tokenizer=pretrained tokenizer.path={file}. {fix}"
        yield Fault("tokenizer", "must begin with the tokens of init_from.run", fix=fix)


def _origin(
    source: str,
    run: Path,
    file: Path,
    step: int,
    weights: Mapping[str, Tensor],
    transfer: Transfer,
    rows: Mapping[str, list[tuple[int, int]]],
) -> State:
    """Returns the content of init_from.json."""
    return {
        "source": source,
        "run": str(run.resolve()),
        "checkpoint": file.name,
        "step": step,
        "sha256": digest(weights),
        "config_hash": config_hash(read_config(run)),
        "copied": len(transfer.copied),
        "rows": {name: len(pairs) for name, pairs in rows.items() if name in transfer.copied},
        "missing": transfer.missing,
        "unused": transfer.unused,
        "reshaped": transfer.reshaped,
        "resized": transfer.resized,
    }


def _check_or_write(path: Path, entry: State) -> None:
    """Writes init_from.json. Raises ConfigError if a run that begins again finds other weights."""
    before = origin(path.parent)
    if before is not None and before["sha256"] != entry["sha256"]:
        raise config_error(
            "init_from.run",
            "must have the weights that this run began with",
            got=f"{entry['run']}, whose weights have changed since",
            fix="Start a new run.",
        )
    replace_text(path, json.dumps(entry, indent=2) + "\n")


def _line(entry: State, every: list[str]) -> str:
    """The line on a start: the tensors that are copied, and those that are not, by name; every:
    names of all tensors.
    """
    place, at = entry["source"], f"{entry['checkpoint']}, step {entry['step']:,}"
    if not entry["step"] and entry["checkpoint"] in (MODEL, PUBLISHED):
        at = "imported"
    copied = f"Starting from {place} ({at}): {entry['copied']:,} tensors copied"
    parts = [copied, *not_copied(entry, every)]
    return f"{'; '.join(parts)}. {diverged(entry['run'])}".strip()
