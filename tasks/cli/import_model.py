"""Import a published model: its config.json and safetensors become the directory of a run, and the
composition that was found is printed. Names of weights, of keys and of tokens are checked one by
one; nothing of the model's repository is executed.
"""

import sys
from typing import Any

from tasks.cli.command import empty_directory

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

    output = empty_directory("--output", args.output)
    composition = import_run(args.model, output)
    print(*differing_words(composition))
    if "'name': 'longrope'" in str(composition.config["position"]):
        rule = "factors of rotary positions follow the length of each text; in transformers, that"
        print(f"{rule} of the longest text of a batch.", file=sys.stderr)
    return 0
