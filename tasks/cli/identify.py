"""Show what a published model consists of: the overrides that compose the architecture of a
config.json of the library transformers, and each key that cannot be composed. No weights are read.
"""

from typing import Any

from tasks.cli.command import print_json

SUMMARY = "the composition of a published model's config.json"
EXAMPLES = """examples:
  xformer identify path/config.json
  xformer identify Qwen/Qwen3-0.6B
  python train.py $(xformer identify path/config.json) data=text data.path=input.txt"""
OPTIONS = {
    "model PATH": "a config.json, a directory that holds one, or a name on the hub",
    "--json": "print plain data",
}


def run(args: Any) -> int:
    from xformer_kit.pretrained import differing_words, published_config

    words = differing_words(published_config(args.model))
    if args.json:
        print_json({"overrides": words})
    else:
        print(*words)
    return 0
