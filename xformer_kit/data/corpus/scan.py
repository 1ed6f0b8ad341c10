"""SCAN as a corpus: commands in a small English, and their actions."""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from xformer_kit.data.corpus.base import CORPORA, PairCorpus, TextPairs, share
from xformer_kit.registry.messages import inside

TURN = {"left": "I_TURN_LEFT", "right": "I_TURN_RIGHT"}
ACT = {"walk": ["I_WALK"], "look": ["I_LOOK"], "run": ["I_RUN"], "jump": ["I_JUMP"], "turn": []}
TIMES = {"": 1, " twice": 2, " thrice": 3}
CUTOFF = {"length": 22, "length_cutoff_26": 26}  # actions of the longest training example
# Copies of the primitive that is trained without others: with them it is a tenth of the published
# training files.
ALONE = {"addprim_jump": ("jump", 1467), "addprim_turn_left": ("turn left", 2189)}

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
    commands (experiment 3). All equal the published files; the random split follows no rule, so
    that `scan_simple.bin` holds it, a bit per command. A fixed share of the training commands is
    for validation; the test set is the published one.
    """

    splits = ("train", "valid", "test")

    split: Split = "simple"
    valid: float = 0.05  # fraction of the training commands

    @classmethod
    def check(cls, options, context):
        yield from inside(options, "Try 0.05.", valid=(0, 1))

    def size(self) -> int:
        return 4_000_000

    def pairs(self, split: str) -> TextPairs:
        commands = grammar()
        alone, copies = ALONE.get(self.split, ("", 1))
        tested = self._tested(commands)
        for (command, actions), test in zip(commands.items(), tested, strict=True):
            pair = command, " ".join(actions)
            if command == alone:  # all copies are for training: the valid commands are others
                yield from [pair] * copies * (split == "train")
            elif split == (
                "test" if test else "valid" if share(f"scan {command}") < self.valid else "train"
            ):
                yield pair

    def _tested(self, commands: dict[str, list[str]]) -> list[bool]:
        """Which commands, in the order of the grammar, are the published test set."""
        if self.split == "simple":
            packed = zlib.decompress(Path(__file__).with_name("scan_simple.bin").read_bytes())
            bits = np.frombuffer(packed, dtype=np.uint8)
            return np.unpackbits(bits, count=len(commands)).astype(bool).tolist()
        if self.split in CUTOFF:
            return [len(actions) > CUTOFF[self.split] for actions in commands.values()]
        alone = ALONE[self.split][0]
        return [command != alone and f" {alone} " in f" {command} " for command in commands]


def grammar() -> dict[str, list[str]]:
    """Command -> actions, all 20,910, in the order of the grammar C -> S | S and S | S after S; S
    -> V | V twice | V thrice.
    """
    sentences = {
        verb + times: acts * n for verb, acts in _verbs().items() for times, n in TIMES.items()
    }
    commands = dict(sentences)
    for first, before in sentences.items():
        for second, behind in sentences.items():
            commands[f"{first} and {second}"] = before + behind
            commands[f"{first} after {second}"] = behind + before
    return commands


def _verbs() -> dict[str, list[str]]:
    """V -> U | D | U opposite d | U around d, where D -> U d and d -> left | right; `turn` always
    has a direction.
    """
    verbs = {verb: acts for verb, acts in ACT.items() if acts}
    for verb, acts in ACT.items():
        for way, turn in TURN.items():
            verbs[f"{verb} {way}"] = [turn, *acts]
            verbs[f"{verb} opposite {way}"] = [turn, turn, *acts]
            verbs[f"{verb} around {way}"] = [turn, *acts] * 4
    return verbs
