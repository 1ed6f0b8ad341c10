"""Export a run as a directory that the library transformers loads: config.json, safetensors, the
tokenizer, and a card with the run's figures. If its composition is that of a published family, the
config is read back and compared before anything is written; a composition that no family has comes
with its modelling code, the file that `xformer eject` writes.
"""

import sys
from typing import Any

from tasks.cli.command import CHECKPOINT_OPTION, empty_directory, load_run

SUMMARY = "a run as a directory that transformers loads"
EXAMPLES = """examples:
  xformer export outputs/llama3/2026-11-20_12-00-00 --to llama
  xformer export RUN --to llama --family qwen3"""
OPTIONS = {
    "run RUN": "a run's directory, or latest",
    "--to! DIR": "the directory, which must be empty or not exist (required)",
    "--family TYPE": "a model_type, such as llama (the first whose models have the composition)",
    **CHECKPOINT_OPTION,
}


def run(args: Any) -> int:
    from xformer_kit.eject.transformers_code import FILE
    from xformer_kit.export import save_published, save_with_code
    from xformer_kit.hub.family import model_types
    from xformer_kit.registry import ConfigError, config_error, suggestion

    folder = empty_directory("--to", args.to)
    if args.family is not None and args.family not in model_types():
        fix = suggestion(args.family, model_types())
        raise config_error("--family", "is no model_type that is known here", args.family, fix)
    loaded = load_run(args, tokenizer=False)
    model, code = loaded.model.cpu(), False
    try:
        families = None if args.family is None else [args.family]
        keys = save_published(folder, model, loaded.config, families, loaded.path)
    except ConfigError as error:
        if args.family is not None:
            fix = "Without --family, other families are tried."
            raise ConfigError(
                fault.under("--family").with_fix(fix) for fault in error.faults
            ) from None
        print(error, file=sys.stderr)
        words = f"The model of the run {loaded.path.name}", f"xformer export {args.run}"
        keys, code = save_with_code(folder, model, loaded.config, *words, loaded.path), True
    (folder / "README.md").write_text(_card(loaded, keys), encoding="utf-8")
    name = keys["architectures"][0]
    if code:
        print(f"{folder}: {name}, in {FILE}.py; load it with trust_remote_code=True.")
    else:
        print(f"{folder}: {name} of transformers.")
    return 0


def _card(run: Any, keys: dict[str, Any]) -> str:
    """The card of a model: what it is, and the figures of its run."""
    from tasks.logging import summary
    from xformer_kit.inspect.parameters import count

    found = summary.read(run.path)
    metrics = summary.final_metrics(found) if found else {}
    lines = [
        "---",
        "library_name: transformers",
        "---",
        f"# {run.config['name']}",
        "",
        f"A `{keys['architectures'][0]}` with {count(run.model):,} parameters, trained with"
        " xformer_kit.",
    ]
    if metrics:
        rows = (f"| {name} | {value} |" for name, value in metrics.items())
        lines += ["", "| metric | value |", "| --- | --- |", *rows]
    return "\n".join(lines) + "\n"
