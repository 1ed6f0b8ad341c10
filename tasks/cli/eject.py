"""Write a model as one file of plain PyTorch, which imports only torch: its layers, a config, a
function that generates, and one that loads the weights. Names of weights, logits and gradients are
those of the model, and the logits are compared before the file is written.
"""

from pathlib import Path
from typing import Any

from tasks.cli.command import CHECKPOINT_OPTION

SUMMARY = "a model as one file of plain PyTorch"
EXAMPLES = """examples:
  xformer eject preset=llama model.layers=4 --to llama.py
  xformer eject outputs/decoder/2026-11-20_12-00-00 --to model.py
  xformer eject path/to/published/model --to model.py"""
OPTIONS = {
    "inputs* OVERRIDE | RUN": (
        "overrides such as attn.heads=8, or one run's directory, whose weights are written to a"
        " safetensors file of the same name"
    ),
    "--to! FILE": "the file, which must not exist",
    **CHECKPOINT_OPTION,
}
# A model of overrides with more parameters is compared by names and shapes only.
COMPARED = 50_000_000


def run(args: Any) -> int:
    from safetensors.torch import save_file

    from xformer_kit.eject import eject
    from xformer_kit.eject.check import check, formatted

    path = _new_file(args.to)
    model, config, title = _model(args)
    command = " ".join(["xformer eject", *args.inputs])
    source = formatted(eject(config, model.vocab_size, model.source_vocab_size, title, command))
    compared = check(source, model, config)
    path.write_text(source, encoding="utf-8")
    lines = f"{path}: {len(source.splitlines())} lines"
    if not model.embed.weight.is_meta and _is_run(args):
        weights = path.with_suffix(".safetensors")
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, weights)
        lines += f"; {weights}"
    checked = "logits" if compared else "names and shapes of weights"
    print(f"{lines}. Its {checked} equal those of the model.")
    return 0


def _is_run(args: Any) -> bool:
    from tasks.cli.command import is_override

    return any(not is_override(word) for word in args.inputs)


def _new_file(name: str) -> Path:
    from xformer_kit.registry import config_error
    from xformer_kit.text.user_path import user_path

    path = user_path(name)
    if path.suffix != ".py":
        raise config_error("--to", "must be the name of a Python file", name, "Try model.py.")
    if path.exists() or path.with_suffix(".safetensors").exists():
        raise config_error("--to", "must not exist", name)
    if not path.parent.is_dir():
        raise config_error("--to", "must be in a directory that exists", name)
    return path


def _model(args: Any) -> tuple[Any, Any, str]:
    """Returns the model of the arguments, its config, and a title."""
    import torch

    from tasks.cli.command import load_run
    from tasks.cli.describe import model_to_describe
    from xformer_kit.eject import merged
    from xformer_kit.inspect.parameters import count
    from xformer_kit.inspect.vocabulary import vocabulary
    from xformer_kit.model.build import build_model

    if _is_run(args) and len(args.inputs) == 1:
        args.run = args.inputs[0]
        loaded = load_run(args, tokenizer=False)
        return loaded.model.cpu(), merged(loaded.config), f"The model of the run {loaded.path.name}"
    config, vocab_size, *_ = model_to_describe(args.inputs, args.components, "eject")
    vocab_size = vocab_size or vocabulary(config)
    with torch.device("meta"):
        model = build_model(config, vocab_size)
    if count(model) <= COMPARED:
        model = build_model(config, vocab_size)
    words = " ".join(args.inputs)
    title = f"The model of {words}" if words else "The default model"
    return model.eval(), config, title
