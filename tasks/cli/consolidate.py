"""Write the weights of a run as one safetensors file, by their names in the model, also of a run
whose ranks wrote their parts into files of their own. Of a run with averaged weights it has these.
"""

from typing import Any

from tasks.cli.command import CHECKPOINT_OPTION, open_run, read_checkpoint
from xformer_kit.text.user_path import user_path

SUMMARY = "the weights of a run as one safetensors file"
EXAMPLES = """examples:
  xformer consolidate RUN
  xformer consolidate RUN --to weights.safetensors --checkpoint last"""
OPTIONS = {
    "run RUN": "a run's directory, or latest",
    "--to FILE": "the file (model.safetensors in the run's directory)",
    **CHECKPOINT_OPTION,
}


def run(args: Any) -> int:
    from safetensors.torch import save_file

    from xformer_kit.registry import config_error

    path, _ = open_run(args.run, args.components)
    file = user_path(args.to) if args.to else path / "model.safetensors"
    if file.exists() or not file.parent.is_dir():
        rule = "exists already" if file.exists() else "is in a directory that does not exist"
        raise config_error("--to", rule, f"{file}", "Name another file.")
    name, checkpoint = read_checkpoint(path, args, "best")
    weights = checkpoint.state_dict | (checkpoint.average or {})
    save_file({n: w.contiguous() for n, w in weights.items()}, file, {"format": "pt"})
    numbers = sum(weight.numel() for weight in weights.values())
    step = f"{checkpoint.global_step:,}"
    print(f"{file}: {len(weights):,} tensors, {numbers:,} numbers, of {name}, step {step}.")
    return 0
