"""Values of wrong types and at the edges: each is answered by one sentence, whatever it is."""

import copy
import itertools

import pytest
from refusals import refusals

from tests.messages import messages
from xformer_kit import ConfigError, compose
from xformer_kit.config import check, preflight
from xformer_kit.config.faults.machine import run_faults
from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.config.options.trainer_schema import OPTIONS
from xformer_kit.plan import KINDS

NODES = {
    "model": SETTINGS.options("model"),
    "data": SETTINGS.options("data"),
    "stack": (*SETTINGS.options("stack"), *KINDS),
    "trainer": OPTIONS,
    "tokenizer": ("name", "vocab_size", "shared"),
    "task": ("name", "label_smoothing"),
    "optim": ("name", "lr", "betas"),
    "schedule": ("name", "warmup"),
    "attn": ("name", "score", "gate"),
    "ema": ("decay",),
    "checkpoints": ("average",),
}
VALUES = ["nonsense", "", -1, 0, 0.5, 3.0, float("nan"), 10**30]
VALUES += [[], [1], ["x"], [[]], {}, {"a": 1}, {"name": "x"}, None, True]


@pytest.mark.extended
@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize(
    "line", ["model=decoder", "model=encoder_decoder task=seq2seq data=scan"], ids=["one", "two"]
)
def test_a_value_is_answered_by_at_most_one_sentence(line, node):
    composed = compose(["logger=none", *line.split()])
    for option, value in itertools.product(NODES[node], VALUES):
        config = copy.deepcopy(composed)
        place = config["model"] if node == "stack" else config
        key = "decoder" if node == "stack" else node
        place[key] = {**(place[key] or {}), option: value}
        found = messages(check(config)) or messages(run_faults(config))
        assert len(found) <= 1, f"{node}.{option}={value!r}: {found}"


@pytest.mark.parametrize("node", [*KINDS, "model", "data", "trainer", "ema", "optim", "task"])
def test_a_node_that_is_no_mapping_is_answered(node):
    composed = compose(["logger=none"])
    for value in [value for value in VALUES if not isinstance(value, dict)]:
        found = messages(check(composed | {node: value}))
        assert found, repr(value)
        assert all(sentence.startswith(f"{node}: ") for sentence in found), repr(value)


LIST = "must be a list of"
SENTENCES = {
    "model.decoder.pattern=base": (
        f"model.decoder.pattern: {LIST} texts or null; got 'base'. Try [base]."
    ),
    "mask=all_of mask.of=causal": f"mask.of: {LIST} mask; got 'causal'. Try [causal].",
    "model.decoder.pattern=[local] model.decoder.variants=3": (
        "model.decoder.variants: must be a mapping or null; got 3."
    ),
    "model.decoder.heads=4": (
        "model.decoder.heads: the config has no such key. It has: layers, unique_layers, pattern,"
        " first, last, variants, layout, cross, attn, mask, position, norm, placement, ffn, kernel."
        " Try model.decoder.attn.heads=4."
    ),
    "model.decoder.pattern=[a] model.decoder.variants.a.heads=4": (
        "model.decoder.variants.a.heads: the config has no such key. It has: attn, mask, position,"
        " norm, placement, ffn, kernel, layout, cross. Try model.decoder.variants.a.attn.heads=4."
    ),
    "model.decoder=null": "model: has no stack. Add one: model.decoder={}.",
    "model.decoder=[]": (
        "model.decoder: cannot be composed: Error merging override ++model.decoder=[]. Change it,"
        " or leave it out."
    ),
    "model.dim=1000000000000000000 attn.heads=3": (
        "attn.heads: must divide model.dim; got 3 and 1000000000000000000. Try 1, 2, 4 or 5, or"
        " set attn.head_dim."
    ),
    "attn=differential attn.heads=3": (
        "attn.heads: must divide model.dim; got 3 and 128. Try 1, 2, 4 or 8, or set attn.head_dim."
    ),
    "data.valid_len=64 model.max_len=32": (
        "model.max_len: must be at least data.seq_len; got 32 and 128. null is data.seq_len."
    ),
    "trainer.checkpoint_every=10 trainer.enable_checkpointing=false": (
        "trainer.checkpoint_every: has no effect, because trainer.enable_checkpointing=false writes"
        " no checkpoint; got 10. Leave it out."
    ),
    "checkpoints.keep_best=2 trainer.enable_checkpointing=false": (
        "checkpoints.keep_best: is of checkpoints, and trainer.enable_checkpointing=false writes"
        " none; got 2. Set it to 1, or trainer.enable_checkpointing=true."
    ),
    "checkpoints.keep_best=0": "checkpoints.keep_best: must be at least 1; got 0.",
    "checkpoints.keep_every=0": "checkpoints.keep_every: must be at least 1 step; got 0.",
    "checkpoints.metric=loss": (
        "checkpoints.metric: must be a metric of the validation, val/..., or train/loss; got"
        " 'loss'. Try val/loss."
    ),
    "checkpoints.metric=val_loss": (
        "checkpoints.metric: must be a metric of the validation, val/..., or train/loss; got"
        " 'val_loss'. Try val/loss."
    ),
    "checkpoints.metric=train_loss": (
        "checkpoints.metric: must be a metric of the validation, val/..., or train/loss; got"
        " 'train_loss'. Try train/loss."
    ),
    "checkpoints.metric=val/los": (
        "checkpoints.metric: it is not known whether a low or a high 'val/los' is better. Did you"
        " mean 'val/loss'? If it is meant, set checkpoints.mode=min or checkpoints.mode=max."
    ),
    "trainer.max_steps=1e19": (
        "trainer.max_steps: must be at most 1,000,000,000,000; got 10000000000000000000."
    ),
    "lora.rank=1e9": (
        "lora.rank: must be at most the smaller side of the largest map that lora.of selects; got"
        " 1,000,000,000 and 128."
    ),
    "checkpoints.mode=lowest": "checkpoints.mode: must be min or max or null; got 'lowest'.",
    "checkpoints.average=2 trainer.enable_checkpointing=false": (
        "checkpoints.average: is of checkpoints, and trainer.enable_checkpointing=false writes"
        " none; got 2. Set it to 1, or trainer.enable_checkpointing=true."
    ),
    "tokenizer.vocab_size=100000000000": (
        "tokenizer.vocab_size: must be at most 16,777,216 tokens; got 100000000000."
    ),
    "trainer.precision=bf16": (
        "trainer.precision: no choice is called 'bf16'. Did you mean 'bf16-mixed'? Known: auto,"
        " 32-true, bf16-mixed, 16-mixed, fp8-mixed, bf16-true, 16-true, 64-true."
    ),
    "trainer.precision=16": (
        "trainer.precision: no choice is called 16. Did you mean '16-mixed'? Known: auto, 32-true,"
        " bf16-mixed, 16-mixed, fp8-mixed, bf16-true, 16-true, 64-true."
    ),
    "model=encoder_decoder task=seq2seq data=scan model.unique_layers=9": (
        "model.unique_layers: must be at most the encoder's layers; got 9 and 2. null is all of"
        " them."
    ),
}


test_what_is_said_of_them = refusals(SENTENCES)


def test_factors_of_a_study_that_are_none_are_answered_by_the_study():
    line = preflight(["study=norm_placement", "study.factors=3"])
    assert line.study["factors"] == 3
    with pytest.raises(ConfigError, match=r"^placement: is a factor of the study"):
        preflight(["study=norm_placement", "placement=pre"])
