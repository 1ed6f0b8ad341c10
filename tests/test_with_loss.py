"""A model under the Trainer of transformers: its arguments, its loss, and its counts of labels."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from xformer_kit import ConfigError, WithLoss
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import VOCAB
from xformer_kit.model.build import build_model

IDS = torch.arange(18).view(3, 6) % VOCAB
MASK = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [0, 1, 1, 1, 1, 0]])
LABELS = IDS.masked_fill(MASK == 0, -100)


def wrapped(start=None, **options):
    return WithLoss(build_model(tiny_config(**options), VOCAB), start)


def test_a_decoder_predicts_the_next_label():
    ours = wrapped().eval()
    output = ours(input_ids=IDS, attention_mask=MASK, labels=LABELS)
    logits = ours.model(IDS, real=MASK.bool())
    assert_close(output["logits"], logits)
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), LABELS[:, 1:].flatten())
    assert_close(output["loss"], expected)
    assert ours.train()(input_ids=IDS, labels=LABELS).keys() == {"loss"}


def test_an_encoder_predicts_its_labels():
    ours = wrapped(model="encoder", token_types=2).eval()
    inputs = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": IDS % 2}
    output = ours(labels=LABELS, **inputs)
    expected = F.cross_entropy(output["logits"].flatten(0, 1), LABELS.flatten())
    assert_close(output["loss"], expected)
    assert_close(ours(**inputs)["logits"], output["logits"])


def test_a_decoder_with_an_encoder_reads_its_labels_after_the_start():
    ours = wrapped(start=3, model="encoder_decoder").eval()
    labels = torch.tensor([[5, 6, -100], [7, 8, 9], [1, -100, -100]])
    target = torch.tensor([[3, 5, 6], [3, 7, 8], [3, 1, 0]])
    output = ours(input_ids=IDS, attention_mask=MASK, labels=labels)
    logits = ours.model(source=IDS, source_real=MASK.bool(), target=target)
    assert_close(output["logits"], logits)
    assert_close(output["loss"], F.cross_entropy(logits.flatten(0, 1), labels.flatten()))
    given = ours(input_ids=IDS, attention_mask=MASK, decoder_input_ids=target)
    assert_close(given["logits"], logits)


def test_the_losses_of_modules_are_added_in_training_and_reports_reach_after_step():
    ours = wrapped(ffn={"name": "moe", "experts": 4, "top_k": 1}).train()
    hidden, report = ours.model.hidden(IDS)
    plain = ours.model.head(hidden[:, :-1], IDS[:, 1:]) / IDS[:, 1:].numel()
    assert_close(ours(input_ids=IDS, labels=IDS)["loss"], plain + report["loss"])
    assert not torch.equal(plain, plain + report["loss"])
    ours(input_ids=IDS, labels=IDS)
    loads = [name for name in report if name.endswith(".load")]
    assert loads
    for name in loads:
        assert_close(ours.report[name], 2 * report[name])
    ours.after_step()
    assert ours.report == {}


@pytest.mark.parametrize("options", [{}, {"model": "encoder"}])
def test_the_trainer_accumulates_the_loss_of_the_whole_step(options):
    """transformers' own code counts the labels of two micro-batches and computes their losses."""
    trainer = pytest.importorskip("transformers.trainer", exc_type=ImportError)
    ours = wrapped(**options).train()
    shifts = trainer.LOSS_MAPPING.get(ours.loss_type) is trainer.ForCausalLMLoss
    self = object.__new__(trainer.Trainer)
    self.accelerator = self.label_smoother = self.compute_loss_func = None
    self.args = SimpleNamespace(average_tokens_across_devices=False, n_gpu=0)
    self.get_tp_size = self.get_cp_size = self.get_sp_size = lambda: 1
    self.model_accepts_loss_kwargs = ours.accepts_loss_kwargs
    self._loss_shifts_labels = shifts
    batches = [
        {"input_ids": IDS[rows], "attention_mask": MASK[rows], "labels": LABELS[rows]}
        for rows in (slice(0, 1), slice(1, 3))
    ]
    count = self._get_num_items_in_batch(batches, torch.device("cpu"))
    parts = [self.compute_loss(ours, dict(batch), num_items_in_batch=count) for batch in batches]
    whole = ours(input_ids=IDS, attention_mask=MASK, labels=LABELS)["loss"]
    assert_close(sum(parts), whole)


def test_a_model_that_it_cannot_train_is_refused():
    refused = (
        ({"model": "encoder_decoder"}, "start: is the first id of the decoder's input"),
        ({"start": 3}, "start: is the first id of the decoder's input"),
        ({"extra": {"future_tokens": {}}}, "extra: trains further predictions"),
    )
    for options, sentence in refused:
        with pytest.raises(ConfigError) as error:
            wrapped(**options)
        assert error.value.messages[0].startswith(sentence)
    with pytest.raises(ConfigError, match="decoder_input_ids: or labels must be given"):
        wrapped(start=3, model="encoder_decoder")(input_ids=IDS)
