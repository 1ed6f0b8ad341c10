"""The task of a language model: a text that it goes on with."""

import torch

from tasks.judged import JudgedTask, Sample

PROMPT, WRITTEN = 16, 96  # tokens of a sample: given, and written by the model


class LanguageModelingTask(JudgedTask):
    """Its sample goes on with the first tokens of the validation text."""

    def sample(self, temperature: float = 0.8) -> Sample | None:
        windows, tokenizer = self.data.prepared.valid, self.data.prepared.tokenizer
        prompt = torch.as_tensor(windows[0]["tokens"])[:PROMPT]
        prompt, room = within(prompt, self.model.longest)  # type: ignore[arg-type]
        given = prompt.tolist()
        if not room:
            return Sample(tokenizer.decode(given), "")
        device = next(self.model.parameters()).device
        with self.drawn():
            ids = self.model.generate(prompt[None].to(device), max_new_tokens=room, temperature=temperature)  # type: ignore[operator]
        whole, head = tokenizer.decode(ids[0].tolist()), tokenizer.decode(given)
        return Sample(
            head, whole[len(head) :] if whole.startswith(head) else tokenizer.decode(ids[0, len(given) :].tolist())
        )


def within(prompt: torch.Tensor, longest: int | None) -> tuple[torch.Tensor, int]:
    """The prompt, and the tokens to be written behind it, that a model's positions have room for."""
    if longest is None:
        return prompt, WRITTEN
    prompt = prompt[: max(1, longest // 2)]
    return prompt, min(WRITTEN, longest - len(prompt))
