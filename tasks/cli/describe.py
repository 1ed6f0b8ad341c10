"""Describe a model before it is built, from overrides as on train.py's command line, or from a
run's directory: its tree with parameters and FLOPs per token, its memory, the kernels of its
attentions, how the loss is computed, and where each value came from. Nothing is allocated, so a
model of any size can be described on any machine.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tasks import Config, Facts, State
from tasks.cli.command import print_result, resolve_config

SUMMARY = "a model's tree, parameters, FLOPs, memory, kernels and loss"
EXAMPLES = """examples:
  xformer describe
  xformer describe model=decoder model.layers=12 attn.kv_heads=2
  xformer describe attn=latent --parameters
  xformer describe experiment=nanogpt_cpu model.vocab_size=65
  xformer describe outputs/decoder/2026-11-20_12-00-00 --json"""
OPTIONS = {
    "inputs* OVERRIDE | RUN": "overrides such as attn.heads=8, or one run's directory",
    "--parameters": "also print what each parameter is: its role, its axes, ...",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    config, vocab_size, provenance, title = model_to_describe(args.inputs, args.components)
    from xformer_kit.inspect.describe import describe

    description = describe(config, vocab_size, provenance)

    def print_page() -> None:
        from tasks.cli import describe_page

        describe_page.print_page(description, config, title, args.parameters)

    plain = _plain(description)
    if args.parameters:
        plain["parameter_table"] = [
            {"name": row.name, "number": row.number, "shape": row.shape} | asdict(row.info)
            for row in description.parameters
        ]
    return print_result(args, plain, print_page)


def model_to_describe(
    arguments: list[str], components: list[str], command: str = "describe"
) -> tuple[Config, int | None, Any, str]:
    """Returns (config, vocab_size, provenance of its values, title) of overrides or of one run's
    directory. vocab_size is None unless a run has it.
    """
    from xformer_kit.config.options.settings import SETTINGS
    from xformer_kit.inspect.provenance import Provenance

    defaults = SETTINGS.defaults("model")
    config, run_dir = resolve_config(arguments, components, command)
    if run_dir is None:
        overrides = dict(word.lstrip("+").split("=", 1) for word in arguments if "=" in word)
        files = tuple(_yaml_files(overrides))
        provenance = Provenance(config, defaults, overrides, files, source="conf")
        return config, None, provenance, " ".join(arguments)
    from xformer_kit.data.tokenizer import load_tokenizer
    from xformer_kit.data.tokenizer.published_ids import set_specials
    from xformer_kit.objective import objective_of

    vocab_size = config["model"].get("vocab_size")
    if not vocab_size and (run_dir / "tokenizer.json").is_file():
        tokenizer = load_tokenizer(run_dir)
        set_specials(tokenizer, objective_of(config).specials, run_dir)
        vocab_size = tokenizer.size
    return config, vocab_size, Provenance(config, defaults, source="config.yaml"), arguments[0]


def _yaml_files(overrides: Mapping[str, str]) -> list[tuple[str, Facts]]:
    """Returns (group=name, content) of the YAML files that overrides choose, the last one first,
    then of the defaults.
    """
    import yaml

    from xformer_kit.config import conf_dir
    from xformer_kit.config.options.settings import default_settings
    from xformer_kit.inspect.provenance import DEFAULT

    def content(*name: str) -> Any:
        path = Path(conf_dir(), f"{'/'.join(name)}.yaml")
        return (path.is_file() and yaml.safe_load(path.read_text(encoding="utf-8"))) or {}

    defaults = {"model": "decoder", "task_defaults": overrides.get("task", "")}
    choices = defaults | {key: value for key, value in overrides.items() if "." not in key}
    if "model" not in overrides:
        for group in ("task_defaults", "experiment"):
            for entry in content(group, choices.get(group, "")).get("defaults") or []:
                if "override /model" in entry:
                    choices["model"] = str(entry["override /model"])
    files = [(f"{group}={name}", content(group, name)) for group, name in choices.items()]
    base = {"model": default_settings()["model"], "defaults": content("train")["defaults"]}
    return [*(file for file in reversed(files) if file[1]), (DEFAULT, base)]


def _plain(description: Any) -> State:
    """Returns the description as plain data, for --json; bytes and FLOPs are plain numbers."""

    def node_data(node: Any) -> State:
        data = {
            "name": node.name,
            "what": node.description,
            "parameters": node.parameters,
            "flops_per_token": node.flops,
        }
        if node.times > 1:
            data["times"] = node.times
        if node.children:
            data["children"] = list(map(node_data, node.children))
        return data

    memory = description.training_memory
    return {
        "steps": description.steps,
        "parameters": description.tree.parameters,
        "active_parameters": description.active_parameters,
        "frozen_parameters": description.frozen_parameters,
        "vocab_size": description.vocab_size,
        "seq_len": description.seq_len,
        "precision": description.precision,
        "flops_per_token": {
            step: description.flops and getattr(description.flops, step)
            for step in ("forward", "training")
        },
        "memory_bytes": memory and memory._asdict(),
        "cache_bytes": description.cache._asdict(),
        "kernels": [choice._asdict() for choice in description.kernels],
        "losses": [loss._asdict() for loss in description.losses],
        "values": [value._asdict() for value in description.values],
        "unknown": description.unknown,
        "tree": node_data(description.tree),
    }
