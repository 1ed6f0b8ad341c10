"""The attention weights of a run's model on a text, and a picture of them with the tokens'
names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tasks import State
from tasks.run.generation.decoding import batch_to_device, device_of, greedy_answer
from tasks.run.generation.infilling import HOLE, split_at_holes
from tasks.run.generation.translation import encode_line
from xformer_kit.inspect import plot_attention
from xformer_kit.inspect.picture import Picture
from xformer_kit.inspect.weights import AttentionRecord, record_attention
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import config_error


def attention_picture(
    run: Any,
    seen: Mapping[str, AttentionRecord],
    length: int | None = None,
    heads: Sequence[int] | None = None,
) -> Picture:
    """Plots the attention weights of the first sequence of a batch, with the names of its tokens.

    seen: weights by the name of the attention. length: plots the first tokens only. heads: the
    numbers of the heads that `seen` holds.
    """
    objective, tokens, source = run.objective, None, None
    weights: dict[str, Tensor] = {}
    for name, attention in seen.items():
        if run.model.two_stacks and name.startswith("encoder."):
            source = token_names(attention.query, objective.source_tokenizer, length)
        else:
            tokens = token_names(attention.query, objective.tokenizer, length)
        if attention.key is not attention.query:
            source = token_names(attention.key, objective.source_tokenizer, length)
        # keys of its own, before those of the tokens
        learned = attention.weights.shape[-1] - attention.key.length
        weights[name] = attention.weights[
            :1, :, :length, : None if length is None else learned + length
        ]
    return plot_attention(weights, tokens, source=source, heads=heads)


def token_names(tokens: Tokens, tokenizer: Any, length: int | None = None) -> list[str]:
    """Returns the text of each token of the first row; special tokens have names."""
    known, ids = tokenizer.vocab_size, tokens.ids[0, :length].tolist()  # type: ignore[index]
    return [
        (
            tokenizer.join([i]).decode("utf-8", "replace")
            if i < known
            else tokenizer.specials[i - known]
        )
        for i in ids
    ]


def attention_weights(
    run: Any, text: str, target: str | None, layers: Any, heads: Any
) -> dict[str, AttentionRecord]:
    """Returns the attention weights of a run's model on a text, by the name of the attention.

    The text is prepared as in the run's task: with its special tokens, with `<mask>` for holes, and
    with the target or, without one, the model's greedy answer. Raises ConfigError for a text that
    the tokenizer cannot encode, and for a target if the task has none.
    """
    objective, model = run.objective, run.model
    if not hasattr(objective, "pair"):
        if target is not None:
            task = run.config["task"]["name"]
            raise config_error(
                "--target", f"is of a run with sources and targets; this one is of task={task}"
            )
        ids = torch.from_numpy(_ids(objective, objective.tokenizer, text, "--text").astype("int64"))
        inputs = {"ids": ids[None].to(device_of(run))}
    else:
        inputs = _pair_inputs(run, text, target)
    if not next(iter(inputs.values())).shape[1]:  # type: ignore[union-attr]
        raise config_error(
            "--text",
            "must hold one token at least",
            got="none",
            fix="Try --text 'To be, or not to be'.",
        )
    return record_attention(model, lambda: model(**inputs), layers, heads)


def _pair_inputs(run: Any, text: str, target: str | None) -> State:
    """Returns the model's inputs for a source and its target, or without one its greedy answer."""
    objective = run.objective
    source = _ids(objective, objective.source_tokenizer, text, "--text")
    if target is not None:
        target_ids = encode_line(objective.tokenizer, target, "--target")
    else:
        target_ids = greedy_answer(run, source, run.config["data"]["seq_len"] - 1)
    batch = batch_to_device(device_of(run), [objective.pair(source, target_ids)])
    if "target" not in batch:
        return {"ids": batch["tokens"].ids, "prefix": batch["tokens"].prefix}
    return {"target": batch["target"].ids, "source": batch["source"].ids}


def _ids(objective: Any, tokenizer: Any, text: str, where: str) -> Any:
    """Returns the ids of a text, with the task's mask or sentinel tokens for holes."""
    if HOLE.search(text) and hasattr(objective, "join_with_blanks"):
        return objective.join_with_blanks(split_at_holes(objective, text, where)[1])
    return encode_line(tokenizer, text, where)
