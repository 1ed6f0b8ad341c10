"""A model with the arguments and the output that the Trainer of transformers expects."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from xformer_kit.model.model import Model
from xformer_kit.registry import config_error
from xformer_kit.tensors.report import Report
from xformer_kit.tensors.tokens import Tokens


class WithLoss(nn.Module):
    """Computes {"loss": (), "logits": (b, t, vocab)} from the arguments of transformers.

    model: a decoder, whose labels are the ids themselves, shifted here; an encoder, whose labels
        are the ids at hidden places; or both, with labels of the decoder.
    start: first id of the decoder's input, needed with two stacks.

    The loss is the mean cross-entropy in nats over labels that are not negative (-100), in training
    plus the losses of the model's modules, such as the balance of experts. Logits are computed if
    there are no labels, and in evaluation: in training the loss needs no logits at once.

    Attribute report: the model's report, summed over the training calls since `after_step`.
    """

    accepts_loss_kwargs: ClassVar[bool] = True  # the Trainer then passes num_items_in_batch

    def __init__(self, model: Model, start: int | None = None):
        super().__init__()
        if model.two_stacks != (start is not None):
            rule = "is the first id of the decoder's input, of a model with two stacks and no other"
            raise config_error("start", rule, got=start, fix="Try WithLoss(model, start=0).")
        if model.predictions:
            rule = "trains further predictions, and this loss is that of the next token"
            raise config_error("extra", rule, fix="Leave the extra out.")
        self.model = model
        self.start = start
        # The Trainer counts the labels of a decoder without the first, which nothing predicts.
        self.loss_type = "ForCausalLM" if model.names == ("decoder",) else None
        self.report: Report = {}

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> dict[str, Tensor]:
        """Each tensor is (b, t), of a source (b, s) if there are two stacks.

        attention_mask: 0 on padding; one without padding has no effect.
        decoder_input_ids: by default the labels, one place later, after `start`.
        num_items_in_batch: labels of the whole optimizer step, by which the summed loss is divided.
        """
        real = None if attention_mask is None or attention_mask.all() else attention_mask.bool()
        read = Tokens(input_ids, None, position_ids, None, token_type_ids, None, real)
        if self.model.two_stacks:
            ids = self._decoder_ids(labels, decoder_input_ids)
            hidden, report = self.model.hidden(Tokens(ids=ids), source=read)
        else:
            hidden, report = self.model.hidden(read)
        if self.training:
            self._keep(report)
        output: dict[str, Tensor] = {}
        if labels is not None:
            output["loss"] = self._loss(hidden, labels, report, num_items_in_batch)
        if labels is None or not self.training:
            output["logits"] = self.model.head(hidden)
        return output

    def after_step(self) -> None:
        """Calls `after_step` of the model with the summed report. Call it after each optimizer step
        of a model with constraints or with experts whose routers adapt.
        """
        self.model.after_step(self.report)
        self.report = {}

    def _keep(self, report: Report) -> None:
        for name, value in report.items():
            self.report[name] = self.report.get(name, 0) + value.detach()

    def _decoder_ids(self, labels: Tensor | None, given: Tensor | None) -> Tensor:
        if given is not None:
            return given
        if labels is None:
            rule = "or labels must be given to a model of two stacks"
            raise config_error("decoder_input_ids", rule, fix="Give labels.")
        start = torch.full_like(labels[:, :1], self.start)  # type: ignore[arg-type]
        return torch.cat([start, labels[:, :-1]], 1).clamp(min=0)  # after the end: no effect

    def _loss(
        self, hidden: Tensor, labels: Tensor, report: Report, num_items: Tensor | int | None
    ) -> Tensor:
        if self.model.names == ("decoder",):
            hidden, labels = hidden[:, :-1], labels[:, 1:]
        count = (labels >= 0).sum()
        total = self.model.head(hidden, labels)
        if self.training and "loss" in report:
            total = total + count * report["loss"]
        return total / (count.clamp(min=1) if num_items is None else num_items)
