"""The attention weights of a run's model on a text, and a picture of them with the tokens'
names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tasks import State
from tasks.generation.decoding import batch_to_device, device_of, greedy_answer
from tasks.generation.infilling import HOLE, split_at_holes
from tasks.generation.translation import encode_line
from xformer_kit.inspect import plot_attention
from xformer_kit.inspect.attention_record import AttentionRecord, record_attention
from xformer_kit.inspect.picture import Picture
from xformer_kit.registry import config_error
from xformer_kit.tensors.tokens import Tokens


def attention_picture(
    run: Any,
    attentions: Mapping[str, AttentionRecord],
    length: int | None = None,
    heads: Sequence[int] | None = None,
) -> Picture:
    """Plots the attention weights of the first sequence of a batch, with the names of its tokens.

    attentions: name of the attention -> its weights. length: plots only the first `length` tokens.
    heads: the numbers of the heads that `attentions` holds.
    """
    objective, tokens, source = run.objective, None, None
    weights: dict[str, Tensor] = {}
    for name, attention in attentions.items():
        if run.model.two_stacks and name.startswith("encoder."):
            source = token_names(attention.query, objective.source_tokenizer, length)
        else:
            tokens = token_names(attention.query, objective.tokenizer, length)
        if attention.key is not attention.query:
            source = token_names(attention.key, objective.source_tokenizer, length)
        # Learned keys come before those of the tokens.
        learned = attention.weights.shape[-1] - attention.key.length
        key_count = None if length is None else learned + length
        weights[name] = attention.weights[:1, :, :length, :key_count]
    return plot_attention(weights, tokens, source=source, heads=heads)


def token_names(tokens: Tokens, tokenizer: Any, length: int | None = None) -> list[str]:
    """Returns the text of each token of the first row; the name of a special token; "front" for
    those that an extra puts in front of the text.
    """
    names: dict[int, str] = tokenizer.special_names()

    def name(i: int) -> str:
        if i < 0:
            return "front"
        return names[i] if i in names else tokenizer.join([i]).decode("utf-8", "replace")

    return [name(i) for i in tokens.ids[0, :length].tolist()]  # type: ignore[index]


def attention_weights(
    run: Any, text: str, target: str | None, layers: Any, heads: Any
) -> dict[str, AttentionRecord]:
    """Returns name of the attention -> its weights in a run's model on a text.

    The text is prepared as in the run's task: with its special tokens, with `<mask>` for holes, and
    with the target or, without one, the model's greedy answer. Raises ConfigError for a text that
    the tokenizer cannot encode, and for a target if the task has none.
    """
    objective = run.objective
    if hasattr(objective, "pair"):
        inputs = _pair_inputs(run, text, target)
    elif target is not None:
        task = run.config["task"]["name"]
        raise config_error(
            "--target", f"is of a run with sources and targets; this one is of task={task}"
        )
    else:
        tokenizer = objective.tokenizer
        ids = _encode(objective, tokenizer, text)
        if not _has_holes(objective, text):
            around = tokenizer.with_start if objective.predicts_every_token else tokenizer.whole
            ids = around(ids)
        inputs = {"ids": torch.from_numpy(ids)[None].to(device_of(run))}
    if not next(iter(inputs.values())).shape[1]:  # type: ignore[union-attr]
        raise config_error(
            "--text",
            "must hold one token at least",
            got="none",
            fix="Try --text 'To be, or not to be'.",
        )
    return record_attention(run.model, lambda: run.model(**inputs), layers, heads)


def _pair_inputs(run: Any, text: str, target: str | None) -> State:
    """Returns the model's inputs for a source and its target, or without one its greedy answer."""
    objective = run.objective
    source = _encode(objective, objective.source_tokenizer, text)
    if target is not None:
        target_ids = encode_line(objective.tokenizer, target, "--target")
    else:
        target_ids = greedy_answer(run, source, run.config["data"]["seq_len"] - 1)
    batch = batch_to_device(device_of(run), [objective.pair(source, target_ids)])
    if "target" not in batch:
        return {"ids": batch["tokens"].ids, "prefix": batch["tokens"].prefix}
    return {"target": batch["target"].ids, "source": batch["source"].ids}


def _has_holes(objective: Any, text: str) -> bool:
    """Whether a text has holes, and the task has tokens for them."""
    return bool(HOLE.search(text)) and hasattr(objective, "join_with_blanks")


def _encode(objective: Any, tokenizer: Any, text: str) -> Any:
    """Returns the ids of --text, with the task's mask or sentinel tokens for holes."""
    if _has_holes(objective, text):
        return objective.join_with_blanks(split_at_holes(objective, text, "--text")[1])
    return encode_line(tokenizer, text, "--text")
