"""Import a published model: its config.json and safetensors become the directory of a run, and the
composition that was found is printed. Names of weights, of keys and of tokens are checked one by
one; nothing of the model's repository is executed.
"""

from pathlib import Path
from typing import Any

SUMMARY = "a published model (config.json and safetensors) as the directory of a run"
EXAMPLES = """examples:
  xformer import path/to/model --output outputs/gpt2
  xformer import Qwen/Qwen3-0.6B --output outputs/qwen3
  python train.py init_from=outputs/qwen3 data=text data.path=input.txt"""
OPTIONS = {
    "model PATH": "a directory of transformers, or a name on the hub",
    "--output! DIR": "the directory of the run, which must be empty or not exist (required)",
}


def run(args: Any) -> int:
    from xformer_kit.pretrained import differing_words, import_run
    from xformer_kit.registry import config_error
    from xformer_kit.text.user_path import user_path

    output: Path = user_path(args.output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise config_error("--output", "must be empty or not exist", args.output)
    composition = import_run(args.model, output)
    print(*differing_words(composition))
    return 0
