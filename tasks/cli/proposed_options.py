"""The commands and options that are proposed for an unknown one."""

import re
from collections.abc import Iterable

from xformer_kit.registry.messages import nearest

# Command of another program, or an earlier one -> what to type here.
OTHER_COMMANDS = {
    **dict.fromkeys(("parts", "modules", "models"), "components"),
    **dict.fromkeys(("list", "ls", "history"), "runs, or xformer components"),
    **dict.fromkeys(("latest", "last"), "runs; latest names the newest run in every command"),
    **dict.fromkeys(("resume", "continue"), "train resume=RUN"),
    **dict.fromkeys(("finetune", "fine-tune"), "train init_from=RUN"),
    **dict.fromkeys(("fit", "run", "pretrain"), "train"),
    **dict.fromkeys(("study", "search", "tune"), "train study=NAME"),
    **dict.fromkeys(("sample", "predict", "infer", "chat", "translate"), "generate RUN"),
    **dict.fromkeys(("eval", "test", "validate", "perplexity"), "evaluate RUN"),
    **dict.fromkeys(("show", "info", "summary", "params"), "describe"),
    **dict.fromkeys(("init", "create", "startproject"), "new NAME"),
    **dict.fromkeys(("lr", "lr-find"), "find-lr"),
    **dict.fromkeys(("logs", "progress"), "status STUDY, or xformer runs"),
}
# Option of another library or program -> ours, of which a command proposes the first that it has.
OTHER_OPTIONS = {
    "beam-size": ("--beam",),
    "beam-width": ("--beam",),
    "bs": ("--batch-size",),
    "ckpt": ("--checkpoint",),
    "ckpt-path": ("--checkpoint",),
    "context": ("--prompt",),
    "data": ("--input",),
    "device-batch-size": ("--batch-size",),
    "do-sample": ("--temperature 1",),
    "epoch": ("--checkpoint",),
    "file": ("--input", "--save"),
    "format": ("--json",),
    "greedy": ("--temperature 0",),
    "length": ("--length", "--max-new-tokens"),
    "max-gen-toks": ("--max-new-tokens",),
    "max-length": ("--max-new-tokens", "--length"),
    "min-length": ("--min-new-tokens",),
    "n-samples": ("--num-samples",),
    "num-beams": ("--beam",),
    "num-training": ("--steps",),
    "num-return-sequences": ("--num-samples",),
    "num-tokens": ("--max-new-tokens",),
    "out": ("--output", "--out", "--save"),
    "output": ("--output", "--out", "--save"),
    "output-file": ("--output", "--out", "--save"),
    "prompt": ("--prompt", "--input"),
    "prompt-file": ("--input",),
    "prompts": ("--prompt", "--input"),
    "resume": ("--checkpoint",),
    "save": ("--save", "--output"),
    "save-path": ("--save", "--output"),
    "sources": ("--input",),
    "start": ("--prompt",),
    "step": ("--checkpoint",),
    "targets": ("--reference", "--target"),
    "text": ("--text", "--prompt", "--input"),
    "texts": ("--text", "--prompt", "--input"),
    "tokens": ("--max-new-tokens",),
    "weights": ("--checkpoint",),
}


def similar_options(word: str, options: Iterable[str]) -> list[str]:
    """Returns the options that are proposed for an unknown one: the same in another spelling
    (--top_k), those that start with it (--temp), the one that it starts with (--stop-sequence),
    ours for that of another library, or else the most similar one.
    """
    options = list(options)
    name = word.strip("-").lower().replace("_", "-")
    if f"--{name}" in options:
        return [f"--{name}"]
    if ours := [o for o in OTHER_OPTIONS.get(name, ()) if o.partition(" ")[0] in options]:
        return ours[:1]
    if longer := [option for option in options if name and option.startswith(f"--{name}")]:
        return longer
    if shorter := [option for option in options if re.match(rf"{option}s?(-|$)", f"--{name}")]:
        return [max(shorter, key=len)]
    # Without the dashes, which all have: --step and --help are not similar.
    names = {option.strip("-"): option for option in options}
    return [names[found] for found in [nearest(name, names)] if found]
