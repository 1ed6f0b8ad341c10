"""Describe a model before it is built, from overrides as on train.py's command line, or from a
run's directory: its tree with parameters and FLOPs per token, its memory, the kernels of its
attentions, and where each value came from. Nothing is allocated, so a model of any size can be
described anywhere.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks import Config, Facts, State
from tasks.cli.command import console, output, subject

SUMMARY = "a model's tree, parameters, FLOPs, memory and kernels"
EXAMPLES = """examples:
  xformer describe
  xformer describe model=decoder model.layers=12 attn.kv_heads=2
  xformer describe experiment=nanogpt_cpu model.vocab_size=65
  xformer describe outputs/decoder/2026-11-20_12-00-00 --json"""
OPTIONS = {
    "what* OVERRIDE | RUN": "overrides such as attn.heads=8, or one run's directory",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    config, vocab_size, origins, title = described(args.what, args.components)
    from xformer_kit.inspect.describe import describe

    found = describe(config, vocab_size, origins)

    def show() -> None:
        from tasks.cli.describe_page import show

        show(console(), found, config, title)

    return output(args, _plain(found), show)


def described(
    words: list[str], files: list[str], command: str = "describe"
) -> tuple[Config, int | None, Any, str]:
    """(config, size of the vocabulary if a run has it, origins of values, title) of overrides or of
    one run's directory.
    """
    from xformer_kit.config.settings import SETTINGS
    from xformer_kit.inspect.provenance import Provenance

    usual = SETTINGS.defaults("model")
    config, path = subject(words, files, command)
    if path is None:
        given = dict(word.lstrip("+").split("=", 1) for word in words)
        origins = Provenance(config, usual, given, tuple(_files(given)), source="conf")
        return config, None, origins, " ".join(words)
    from xformer_kit.data.tokenizer import load_tokenizer
    from xformer_kit.objective import objective_of

    vocab_size = config["model"].get("vocab_size")
    if not vocab_size and (path / "tokenizer.json").is_file():
        vocab_size = load_tokenizer(path).vocab_size + len(objective_of(config).specials)
    return config, vocab_size, Provenance(config, usual, source="config.yaml"), str(path)


def _files(given: Mapping[str, str]) -> list[tuple[str, Facts]]:
    """(group=name, content) of the YAML files that the command line chose, the last one first, then
    of the defaults.
    """
    import yaml

    from xformer_kit.config import conf_dir
    from xformer_kit.config.settings import default_settings
    from xformer_kit.inspect.provenance import DEFAULT

    def said(*place: str) -> Any:
        path = Path(conf_dir(), *place[:-1], f"{place[-1]}.yaml")
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        return yaml.safe_load(text) or {}

    task = {"model": "decoder", "experiment": given.get("task", "language_modeling")}
    chosen = task | {key: value for key, value in given.items() if "." not in key}
    if "model" not in given:
        for entry in said("experiment", chosen["experiment"]).get("defaults") or []:
            if "override /model" in entry:
                chosen["model"] = str(entry["override /model"])
    found = [(f"{group}={name}", said(group, name)) for group, name in chosen.items()]
    defaults = {"model": default_settings()["model"], "defaults": said("train")["defaults"]}
    return [*(pair for pair in reversed(found) if pair[1]), (DEFAULT, defaults)]


def _plain(found: Any) -> State:
    """The description for machines; bytes and FLOPs as plain numbers."""

    def node(n: Any) -> State:
        plain = {
            "name": n.name,
            "what": n.what,
            "parameters": n.parameters,
            "flops_per_token": n.flops,
        }
        plain |= {"times": n.times} if n.times > 1 else {}
        return plain | ({"children": [node(c) for c in n.children]} if n.children else {})

    return {
        "parameters": found.tree.parameters,
        "active_parameters": found.active,
        "vocab_size": found.vocab_size,
        "seq_len": found.seq_len,
        "precision": found.precision,
        "flops_per_token": {"forward": found.forward, "training": found.training},
        "memory_bytes": found.training_memory and found.training_memory._asdict(),
        "cache_bytes": found.cache._asdict(),
        "kernels": [choice._asdict() for choice in found.kernels],
        "values": [value._asdict() for value in found.values],
        "unknown": found.unknown,
        "tree": node(found.tree),
    }
