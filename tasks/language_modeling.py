"""The task of a language model: validation over a whole split, and a text that the model writes."""

from typing import Any

import torch
from torch import nn

from tasks.metrics import Likelihood
from tasks.module import Task
from tasks.randomness import aside, key
from xformer_kit.data import Batch

PROMPT, WRITTEN = 16, 96  # tokens of a sample: given, and written by the model


class LanguageModelingTask(Task):
    """Adds to a Task the likelihood of the validation text, over all of its tokens and all ranks.

    `validation` holds the last result: loss (nats per token), perplexity, bits_per_byte.
    """

    def __init__(
        self, config: dict[str, Any], model: nn.Module, objective: Any, *, total_steps: int, bytes_per_token: float
    ):
        super().__init__(config, model, objective, total_steps=total_steps)
        self.bytes_per_token = bytes_per_token
        self.validation: dict[str, float] = {}

    def setup(self, stage: str) -> None:
        device = self.trainer.strategy.root_device
        dtype = torch.float32 if device.type == "mps" else torch.float64  # mps has no fp64
        self.likelihood = Likelihood(self.bytes_per_token, dtype).to(device)

    def validation_step(self, batch: Batch, index: int) -> None:
        nats, count, _ = self.objective.loss(self.model, batch)
        self.likelihood.update(nats, count)

    def on_validation_epoch_end(self) -> None:
        self.validation = self.likelihood.compute()
        self.likelihood.reset()

    def write_sample(self, tokenizer: Any, prompt: torch.Tensor, temperature: float = 0.8) -> tuple[str, str]:
        """The prompt and what the model writes after it, as text; the same for the same weights and step."""
        model, training = self.model, self.model.training
        prompt, room = within(prompt, model.longest)  # type: ignore[arg-type]
        if not room:
            return tokenizer.decode(prompt.tolist()), ""
        device = next(model.parameters()).device
        model.eval()
        try:
            with torch.no_grad(), aside(device, key("sample", self.config["seed"], self.step)):
                ids = model.generate(prompt[None].to(device), max_new_tokens=room, temperature=temperature)  # type: ignore[operator]
        finally:
            model.train(training)
        given = prompt.tolist()
        whole, head = tokenizer.decode(ids[0].tolist()), tokenizer.decode(given)
        return head, whole[len(head) :] if whole.startswith(head) else tokenizer.decode(ids[0, len(given) :].tolist())


def within(prompt: torch.Tensor, longest: int | None) -> tuple[torch.Tensor, int]:
    """The prompt, and the tokens to be written behind it, that a model's positions have room for."""
    if longest is None:
        return prompt, WRITTEN
    prompt = prompt[: max(1, longest // 2)]
    return prompt, min(WRITTEN, longest - len(prompt))


def prompt(windows: Any) -> torch.Tensor:
    """The first tokens of a text."""
    return torch.as_tensor(windows[0]["tokens"])[: min(PROMPT, windows.tokens)]
