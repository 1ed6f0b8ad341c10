"""seq2seq: what each model reads of a pair, and what its loss is the sum of."""

import pytest
import torch
from objective_models import WORDS, generator, ids, made
from torch.testing import assert_close

from tests.messages import messages
from xformer_kit.attention.base import AttentionTraits
from xformer_kit.data.batch import collate
from xformer_kit.mask.base import MaskTraits
from xformer_kit.objective import OBJECTIVES
from xformer_kit.objective.cross_entropy import CrossEntropy
from xformer_kit.registry import Context

PAIRS = [(ids(3, 1, 4), ids(15, 9)), (ids(2), ids(6, 5, 3, 5, 8)), (ids(9, 7, 9, 3, 2, 3), ids(8))]
START, END = WORDS, WORDS + 1
BOTH = pytest.mark.parametrize(
    ("model", "mask"), [("encoder_decoder", "causal"), ("decoder", "causal"), ("decoder", "prefix")]
)


def batch_of(objective, pairs=PAIRS):
    return collate([objective.example({"source": s, "target": t}, generator()) for s, t in pairs])


def test_two_stack_read_a_source_and_a_shifted_target_by_eye():
    objective, _ = made("seq2seq", "encoder_decoder")
    batch = batch_of(objective)
    assert batch["source"].ids[0].tolist() == [3, 1, 4, END, 0, 0, 0]
    assert batch["source"].real[0].int().tolist() == [1, 1, 1, 1, 0, 0, 0]
    seen, target = batch["target"].shifted()
    assert seen.ids[0, :3].tolist() == [START, 15, 9]
    assert target[0].tolist() == [15, 9, END, -1, -1, -1]


def test_a_decoder_alone_reads_one_stream_without_holes_by_eye():
    objective, _ = made("seq2seq", "decoder")
    batch = batch_of(objective)
    assert batch["tokens"].ids[0].tolist() == [3, 1, 4, END, START, 15, 9, END, 0, 0]
    assert batch["tokens"].real[0].int().tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]
    assert batch["tokens"].prefix[0].int().tolist() == [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    assert batch["labels"][0].tolist() == [-1, -1, -1, -1, -1, 15, 9, END, -1, -1]


@BOTH
@torch.no_grad()
def test_the_loss_is_the_surprise_of_every_target_token_from_the_logits(model, mask):
    objective, built = made("seq2seq", model, through=mask)
    expected = 0.0
    for source, target in PAIRS:  # by hand, one pair at a time
        source = [*source.tolist(), END]
        read, said = [START, *target.tolist()], [*target.tolist(), END]
        if model == "decoder":
            prefix = torch.arange(len(source) + len(read))[None] <= len(source)
            fields = {"prefix": prefix} if mask == "prefix" else {}
            logits = built(torch.tensor([source + read]), **fields)[0, len(source) :]
        else:
            logits = built(source=torch.tensor([source]), target=torch.tensor([read]))[0]
        expected = expected - logits.log_softmax(-1)[range(len(said)), said].sum()
    nats, count, _ = objective.loss(built, batch_of(objective))
    assert_close(nats, expected)
    assert count == sum(len(target) + 1 for _, target in PAIRS) == 11


@BOTH
def test_micro_batches_of_any_padding_add_up_with_their_gradients(model, mask):
    objective, built = made("seq2seq", model, through=mask, label_smoothing=0.1, z_loss=0.01)
    built.train()
    whole, count, _ = objective.loss(built, batch_of(objective))
    gradients = torch.autograd.grad(whole, list(built.parameters()))
    parts = [objective.loss(built, batch_of(objective, [pair])) for pair in PAIRS]
    assert_close(sum(part[0] for part in parts), whole)
    assert sum(part[1] for part in parts) == count
    summed = torch.autograd.grad(sum(part[0] for part in parts), list(built.parameters()))
    for one, other in zip(gradients, summed, strict=True):
        assert_close(one, other)


def test_the_mask_prefix_changes_what_the_source_sees_and_a_causal_one_does_not():
    objective, causal = made("seq2seq", "decoder", through="causal")
    _, prefix = made("seq2seq", "decoder", through="prefix")
    prefix.load_state_dict(causal.state_dict())
    batch = batch_of(objective)
    assert not torch.isclose(objective.loss(causal, batch)[0], objective.loss(prefix, batch)[0])
    batch["tokens"] = batch["tokens"]._replace(prefix=None)
    assert_close(objective.loss(causal, batch)[0], objective.loss(prefix, batch)[0])


@BOTH
def test_smoothing_and_z_loss_are_of_training_and_evaluation_is_plain(model, mask):
    plain, built = made("seq2seq", model, through=mask)
    both, _ = made("seq2seq", model, through=mask, label_smoothing=0.1, z_loss=0.01)
    batch = batch_of(plain)
    assert_close(both.loss(built, batch)[0], plain.loss(built, batch)[0])
    built.train()
    assert both.loss(built, batch)[0] > plain.loss(built, batch)[0]


@BOTH
def test_size_counts_what_is_read_and_blank_is_a_full_batch(model, mask):
    objective, built = made("seq2seq", model, through=mask)
    pairs = PAIRS[:1]
    assert objective.size(batch_of(objective, pairs)) == (3 + 1) + (1 + 2)
    assert objective.size(batch_of(objective)) == sum(len(s) + 1 + len(t) + 1 for s, t in PAIRS)
    blank = objective.blank(2, 7)
    assert objective.loss(built, blank)[1] == 2 * 7
    assert objective.size(blank) == (2 * 7 if model == "decoder" else 2 * (7 + 7))


def meeting(mask, stack="decoder", source=False, **more):
    traits = MaskTraits(sees_future=mask == "full", sees_prefix=mask == "prefix")
    given = {"attn": AttentionTraits(), "mask": traits, "has_source": source}
    return Context(stack=stack, names={"mask": mask}, **given, **more)


def test_masks_without_a_meaning_are_refused_with_the_way_out():
    def cannot(context):
        return " ".join(messages(OBJECTIVES.cannot("seq2seq", context)))

    assert cannot(meeting("causal")) == ""
    assert cannot(meeting("prefix")) == ""
    assert cannot(meeting("full", "encoder")) == ""
    assert cannot(meeting("full", cross=True, source=True)) == ""
    assert (
        cannot(meeting("full", source=True))
        == "mask 'full' sees the future, so the decoder would read the token that it has to"
        " predict. Use mask=causal."
    )
    assert cannot(meeting("full")).endswith(" Use mask=prefix or mask=causal.")
    assert (
        cannot(meeting("prefix", source=True))
        == "mask 'prefix' is for a prefix, which a decoder with an encoder does not have. "
        "Use mask=causal, or only a decoder."
    )
    assert (
        cannot(meeting("prefix", "encoder"))
        == "mask 'prefix' is for a prefix, which an encoder does not have. Use mask=full, or"
        " only a decoder."
    )


@pytest.mark.parametrize("name", [n for n, o in OBJECTIVES.items() if issubclass(o, CrossEntropy)])
def test_ranges_are_answered_in_a_sentence(name):
    def faults(**options):
        return messages(OBJECTIVES.faults({"name": name, **options}, "task", Context()))

    assert faults() == []
    assert faults(label_smoothing=1.0) == [
        "task.label_smoothing: must be at least 0 and below 1; got 1.0."
    ]
    assert faults(z_loss=-0.1) == ["task.z_loss: must be at least 0; got -0.1."]
