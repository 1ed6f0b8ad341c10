"""The corpus SCAN: commands in a small English, and their actions."""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from xformer_kit.data.corpus.base import CORPORA, PairCorpus, TextPairs, hash_fraction
from xformer_kit.registry.messages import in_open_range

TURN = {"left": "I_TURN_LEFT", "right": "I_TURN_RIGHT"}
ACT = {"walk": ["I_WALK"], "look": ["I_LOOK"], "run": ["I_RUN"], "jump": ["I_JUMP"], "turn": []}
TIMES = {"": 1, " twice": 2, " thrice": 3}
CUTOFF = {"length": 22, "length_cutoff_26": 26}  # actions of the longest training example
# The primitive that is trained only by itself, and its number of copies in the published training
# files, a tenth of them.
PRIMITIVES = {"addprim_jump": ("jump", 1467), "addprim_turn_left": ("turn left", 2189)}

Split = Literal["simple", "length", "length_cutoff_26", "addprim_jump", "addprim_turn_left"]


@CORPORA.register("scan", also_called=("SCAN",))
@dataclass(kw_only=True, eq=False)
class Scan(PairCorpus):
    """All 20,910 commands of SCAN -> their actions (Lake & Baroni, 2018, arXiv:1711.00350; grammar
    and meanings: figures 6 and 7), made from the grammar. `turn around left twice` -> eight times
    I_TURN_LEFT.

    split: simple, a random 16,728 to 4,182 (experiment 1); length, up to 22 actions to 24 and more
    (experiment 2); length_cutoff_26, up to 26 to more (Csordás et al., 2021, arXiv:2108.12284);
    addprim_jump and addprim_turn_left, one primitive is trained only by itself and tested in
    commands (experiment 3). All equal the published files. `scan_simple.bin` holds the random
    split, one bit per command. A fixed fraction of the training commands is for validation; the
    test set is the published one.
    """

    splits = ("train", "valid", "test")

    split: Split = "simple"
    valid: float = 0.05  # fraction of the training commands

    @classmethod
    def check(cls, options, context):
        yield from in_open_range(options, "Try 0.05.", valid=(0, 1))

    def size(self) -> int:
        return 4_000_000

    def pairs(self, split: str) -> TextPairs:
        commands = grammar()
        primitive, copies = PRIMITIVES.get(self.split, ("", 1))
        tested = self._tested(commands)
        for (command, actions), test in zip(commands.items(), tested, strict=True):
            pair = command, " ".join(actions)
            valid = hash_fraction(f"scan {command}") < self.valid
            if command == primitive:  # all copies are for training
                yield from [pair] * copies * (split == "train")
            elif split == ("test" if test else "valid" if valid else "train"):
                yield pair

    def _tested(self, commands: dict[str, list[str]]) -> list[bool]:
        """Returns whether each command, in the grammar's order, is in the published test set."""
        if self.split == "simple":
            packed = zlib.decompress(Path(__file__).with_name("scan_simple.bin").read_bytes())
            bits = np.frombuffer(packed, dtype=np.uint8)
            return np.unpackbits(bits, count=len(commands)).astype(bool).tolist()
        if self.split in CUTOFF:
            return [len(actions) > CUTOFF[self.split] for actions in commands.values()]
        primitive = PRIMITIVES[self.split][0]
        return [command != primitive and f" {primitive} " in f" {command} " for command in commands]


def grammar() -> dict[str, list[str]]:
    """Returns command -> actions, all 20,910, in the order of the grammar C -> S | S and S | S
    after S; S -> V | V twice | V thrice.
    """
    sentences = {
        verb + times: acts * n for verb, acts in _verbs().items() for times, n in TIMES.items()
    }
    commands = dict(sentences)
    for first, first_actions in sentences.items():
        for second, second_actions in sentences.items():
            commands[f"{first} and {second}"] = first_actions + second_actions
            commands[f"{first} after {second}"] = second_actions + first_actions
    return commands


def _verbs() -> dict[str, list[str]]:
    """Returns verb phrase -> actions: V -> U | D | U opposite d | U around d, where D -> U d and d
    -> left | right; `turn` always has a direction.
    """
    verbs = {verb: acts for verb, acts in ACT.items() if acts}
    for verb, acts in ACT.items():
        for direction, turn in TURN.items():
            verbs[f"{verb} {direction}"] = [turn, *acts]
            verbs[f"{verb} opposite {direction}"] = [turn, turn, *acts]
            verbs[f"{verb} around {direction}"] = [turn, *acts] * 4
    return verbs
