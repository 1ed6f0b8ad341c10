"""The attention weights of a run's model in a text, and a picture of them with the tokens'
names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tasks import State
from tasks.run.faults import refusal
from tasks.run.generation.decoding import answer, batch_on, device_of
from tasks.run.generation.infilling import HOLE, pieces
from tasks.run.generation.translation import encoded_line
from xformer_kit.inspect import plot_attention
from xformer_kit.inspect.picture import Picture
from xformer_kit.inspect.weights import Seen, watched
from xformer_kit.model.tokens import Tokens


def attention_picture(
    run: Any,
    seen: Mapping[str, Seen],
    length: int | None = None,
    heads: Sequence[int] | None = None,
) -> Picture:
    """The first sequence of what attentions saw, the first `length` tokens of it, with the names of
    the tokens; `heads`: the numbers of those that were chosen.
    """
    objective, tokens, source = run.objective, None, None
    weights: dict[str, Tensor] = {}
    for name, one in seen.items():
        if run.model.two_stacks and name.startswith("encoder."):
            source = token_names(one.query, objective.source_tokenizer, length)
        else:
            tokens = token_names(one.query, objective.tokenizer, length)
        if one.key is not one.query:
            source = token_names(one.key, objective.source_tokenizer, length)
        learned = one.weights.shape[-1] - one.key.length
        weights[name] = one.weights[:1, :, :length, : None if length is None else learned + length]
    return plot_attention(weights, tokens, source=source, heads=heads)


def token_names(tokens: Tokens, tokenizer: Any, length: int | None = None) -> list[str]:
    """What each token of the first row stands for; special tokens have names."""
    known, ids = tokenizer.vocab_size, tokens.ids[0, :length].tolist()  # type: ignore[index]
    return [
        (
            tokenizer.join([i]).decode("utf-8", "replace")
            if i < known
            else tokenizer.specials[i - known]
        )
        for i in ids
    ]


def seen_of(run: Any, text: str, target: str | None, layers: Any, heads: Any) -> dict[str, Seen]:
    """The attention weights of a run's model in a text, prepared as in its task: with the task's
    special tokens, `<mask>` for holes, and with a target, or else the model's own greedy answer.

    Raises ConfigError for a text that the tokenizer cannot encode, and for a target if the task has
    none.
    """
    objective, model = run.objective, run.model
    if not hasattr(objective, "pair"):
        if target is not None:
            task = run.config["task"]["name"]
            raise refusal(
                "--target", f"is of a run with sources and targets; this one is of task={task}"
            )
        ids = torch.from_numpy(_ids(objective, objective.tokenizer, text, "--text").astype("int64"))
        given = {"ids": ids[None].to(device_of(run))}
    else:
        given = _answered(run, text, target)
    if not next(iter(given.values())).shape[1]:  # type: ignore[union-attr]
        raise refusal(
            "--text",
            "must hold one token at least",
            got="none",
            fix="Try --text 'To be, or not to be'.",
        )
    return watched(model, lambda: model(**given), layers, heads)


def _answered(run: Any, text: str, target: str | None) -> State:
    """The inputs of a model of sources and targets: a text and a target, or else the model's
    answer.
    """
    objective = run.objective
    source = _ids(objective, objective.source_tokenizer, text, "--text")
    if target is not None:
        said = encoded_line(objective.tokenizer, target, "--target")
    else:
        said = answer(run, source, run.config["data"]["seq_len"] - 1)
    batch = batch_on(device_of(run), [objective.pair(source, said)])
    if "target" not in batch:
        return {"ids": batch["tokens"].ids, "prefix": batch["tokens"].prefix}
    return {"target": batch["target"].ids, "source": batch["source"].ids}


def _ids(objective: Any, tokenizer: Any, text: str, where: str) -> Any:
    """The ids of a text, in which holes are what the task reads there."""
    if HOLE.search(text) and hasattr(objective, "blanked"):
        return objective.blanked(pieces(objective, text, where)[1])
    return encoded_line(tokenizer, text, where)
