"""Checks a command line, composes its config with Hydra, and trains, as `xformer train` does.

python train.py model=decoder attn.heads=8
python train.py -m position=rotary,alibi
python train.py resume=outputs/decoder/2026-11-20_12-00-00
python train.py resume=outputs/decoder/2026-11-20_12-00-00 trainer.max_steps=2000
"""

import sys

from tasks.entry import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
