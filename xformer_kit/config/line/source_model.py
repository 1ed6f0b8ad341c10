"""The architecture of the model whose weights a new run starts from, `init_from=SOURCE`.

It is composed like a preset: over the defaults of the task, under an experiment and the line, so
that a run which starts from weights has their architecture but for what is stated. The files of
`hub` are imported only where a run starts from weights.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override

from xformer_kit.config.line.overrides import parse_word
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.config.saved.config_file import read_config
from xformer_kit.config.saved.init_from_source import source_of
from xformer_kit.config.saved.run_directories import named_run
from xformer_kit.config.saved.saved_run import check_saved
from xformer_kit.plan import KINDS, STACKS
from xformer_kit.registry import ConfigError, Node, config_error

PRESET, RUN = "preset", "init_from.run"
# Options of the model that are of one run: not of its architecture.
OF_RUN = (
    *("freeze", "unfreeze_at", "checkpoint_activations"),
    *("seed", "dropout", "vocab_size"),
)
TOKENIZER = "tokenizer.json"
SEQ_LEN = SETTINGS.options("data")["seq_len"].default


def source_of_files(config: Mapping[str, Any]) -> Any:
    """Returns the source that a file of the line sets, in a config that was composed without it:
    `init_from: RUN`, or `init_from: {run: RUN}`; None if there is none.
    """
    node = config.get("init_from")
    path = node.get("run") if isinstance(node, Mapping) else node
    return named_run(path) if isinstance(path, str) else None


def with_run(node: Any, run: str) -> dict[str, Any]:
    """Returns the node init_from of a file with this source; the file may have `init_from: RUN`."""
    if not isinstance(node, Mapping):
        node = {key: o.default for key, o in SETTINGS.options("init_from").items()}
    return {**node, "run": run}


def with_source(
    compose: Callable[[list[Override]], Node], overrides: Sequence[Override], path: Any = None
) -> Sequence[Override]:
    """Returns the overrides of a run, with the preset of the model that it starts from, if any. A
    preset of the line must be of its family. path: the source, if a file sets it. compose: returns
    the config of a line.
    """
    values = {o.key_or_group: o for o in overrides if not o.is_sweep_override()}
    if RUN in values:
        path = values[RUN].value()
    if not isinstance(path, str) or not path:
        return overrides
    preset = str(values[PRESET].value()) if PRESET in values else None
    try:
        node, family = _node(compose, path, preset)
    except ConfigError:  # the fault of the source has its own sentence
        return overrides
    if preset is not None and not (family and preset.startswith(family)):
        rule = f"has no effect, because {RUN} brings the architecture of {path}"
        fix = "Leave it out, and state what changes, such as norm=rms."
        raise config_error(PRESET, rule, preset, fix)
    if "tokenizer" not in values and (file := _tokenizer(path)):
        node["defaults"].append({"override /tokenizer": "pretrained"})
        node["tokenizer"] = {"path": file}
    longest = node.get("model", {}).get("max_len")
    if isinstance(longest, int) and longest < SEQ_LEN and "data.seq_len" not in values:
        node["data"] = {"seq_len": longest}
    if "model" in values:
        _leave_out_stacks(node, str(values["model"].value()))
    name = f"source_{hashlib.sha256(json.dumps(node).encode()).hexdigest()[:12]}"
    # in a folder that is not listed among the choices
    ConfigStore.instance().store(group=f"{PRESET}/.", name=name, node=node, package="_global_")
    others = [o for o in overrides if o.key_or_group != PRESET]
    return [*parse_word(f"{PRESET}=./{name}"), *others]


def _node(
    compose: Callable[[list[Override]], Node], path: str, preset: str | None
) -> tuple[dict[str, Any], str]:
    """The content of the preset, and the preset of the family of a published model, else "".

    preset: that of the line, of which that of a published model may be another size.
    """
    from xformer_kit.hub.download import published_directory
    from xformer_kit.hub.identify import identify, preset_words
    from xformer_kit.hub.transfer import config_of

    if (place := published_directory(path)) is not None:
        found = identify(config_of(place))
        of_family = compose(parse_word(f"preset={found.family.preset}"))["model"]
        words = preset_words(found, of_family, SEQ_LEN)
        if preset is not None and preset.startswith(found.family.preset):
            words.append(f"preset={preset}")
        config = compose([o for word in words for o in parse_word(word)])
        node = {"name": config["name"], **_of_config(config)}
        node["defaults"].append({"override /task": config["task"]["name"]})
        return node, found.family.preset
    run = source_of(path)[0]
    check_saved(run, config := read_config(run))
    return _of_config(config), ""


def _of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a preset with the architecture of a config."""
    model = config["model"]
    node = {kind: _options(config[kind]) for kind in KINDS if isinstance(config.get(kind), Mapping)}
    node["model"] = {key: value for key, value in model.items() if key not in OF_RUN}
    node["extra"] = config.get("extra") or {}
    stacks = "_".join(stack for stack in STACKS if stack in model)
    chosen = {"model": stacks} | {kind: config[kind]["name"] for kind in node if kind in KINDS}
    return {"defaults": [{f"override /{k}": name} for k, name in chosen.items()], **node}


def _leave_out_stacks(node: dict[str, Any], model: str) -> None:
    """Leaves out what the preset has of stacks if the line chooses another model: those that this
    model does not have, and the mask, which is that of the model.
    """
    own = node.get("model")
    if not isinstance(own, dict) or "_".join(stack for stack in STACKS if stack in own) == model:
        return
    for stack in STACKS:
        if stack not in model.split("_"):
            own.pop(stack, None)
    node.pop("mask", None)
    node["defaults"] = [one for one in node["defaults"] if "override /mask" not in one]


def _options(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "name"}


def _tokenizer(path: str) -> str | None:
    """The file of the source's tokenizer, if it has one."""
    from xformer_kit.hub.download import published_directory

    folder = published_directory(path) or source_of(path)[0]
    file = Path(folder, TOKENIZER)
    return str(file) if file.is_file() else None
