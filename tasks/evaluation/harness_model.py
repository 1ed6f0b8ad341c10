"""A run's language model as a model of lm-eval (EleutherAI, 2021,
https://github.com/EleutherAI/lm-evaluation-harness).

This file needs the package lm_eval and is imported where it is used. Of a longer text only the last
`max_length` tokens are read, as by lm-eval's `HFLM`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from tasks.generation.decoding import device_of, in_precision
from xformer_kit.data.tokenizer.published_ids import text_ends
from xformer_kit.generate import stream
from xformer_kit.generate.prompt import evaluating
from xformer_kit.registry import config_error, suggestion
from xformer_kit.tensors.tokens import Tokens

CHUNK = 2**24  # logits that exist at once
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")


class HarnessModel(TemplateLM):
    """A causal language model of a run.

    batch_size: texts at a time. max_length: the longest text in tokens that the model reads.

    `prefix_token_id` is the token in front of a text without a context: that of the beginning of a
    text, or of the end if there is none. Without both, as for the tokenizers that are trained here,
    the first token of such a text is given and not scored, as in `xformer evaluate --input`.
    """

    def __init__(self, run: Any, batch_size: int, max_length: int):
        super().__init__()
        self.run = run
        self.texts = run.objective.tokenizer
        self.batch_size = batch_size
        self.max_length = max_length
        begin, self.end = text_ends(self.texts, run.path)
        self.prefix = self.end if begin is None else begin
        self.unknown = 0  # tokens of answers that stand for unknown text

    @property
    def eot_token_id(self) -> int | None:
        """The token after a text, None if there is none."""
        return self.end

    @property
    def prefix_token_id(self) -> int | None:
        """The token before a text, None if there is none."""
        return self.prefix

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Returns the ids of a text, after those that a published model reads before each text."""
        ids = self.texts.encode(string)
        with_start = ids if add_special_tokens is False else self.texts.with_start(ids)
        return [int(i) for i in with_start]

    def loglikelihood(
        self, requests: Sequence[Any], disable_tqdm: bool = True
    ) -> list[tuple[float, bool]]:
        """Returns (log p in nats, whether it is the greedy answer) of each answer to a context.

        requests: with `args` (context, answer). Both are encoded together, and the answer begins
        after as many tokens as the context has by itself; spaces at the end of the context belong
        to the answer (`TemplateLM._encode_pair`).
        """
        pairs = [(request.args, *self._pair(*request.args)) for request in requests]
        return self._loglikelihood_tokens(pairs)

    def _pair(self, context: str, answer: str) -> tuple[list[int], list[int]]:
        """Returns the ids of the context, at least one, and of the answer."""
        if context:
            ids, answer_ids = self._encode_pair(context, answer)
        else:
            ids, answer_ids = [], self.tok_encode(answer, add_special_tokens=False)
            if self.prefix is not None and answer_ids[:1] != [self.prefix]:
                ids = [self.prefix]
        return (ids, answer_ids) if ids else (answer_ids[:1], answer_ids[1:])

    def loglikelihood_rolling(
        self, requests: Sequence[Any], disable_tqdm: bool = True
    ) -> list[float]:
        """Returns log p in nats of each text, in windows of `max_length` tokens that predict each
        token once; the last window begins earlier, so that it is full.
        """
        counts, windows = [], []
        for request in requests:
            ids = self.tok_encode(request.args[0])
            prefix = self.prefix
            if prefix is None:
                prefix, ids = (ids[0], ids[1:]) if ids else (0, [])
            found = get_rolling_token_windows(ids, prefix, self.max_length, context_len=1)
            pairs = [("", *make_disjoint_window(pair)) for pair in found]
            counts.append(len(pairs))
            windows += pairs
        scores = iter(self._loglikelihood_tokens(windows))
        return [sum(next(scores)[0] for _ in range(count)) for count in counts]

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Returns (log p, whether greedy) of the second ids of each request after the first ids.
        Requests that read the same tokens, such as the letters of a multiple choice, are computed
        once.
        """
        rows: dict[tuple[int, ...], list[int]] = {}
        for i, (_, context, answer) in enumerate(requests):
            if len(answer) > self.max_length:
                rule = f"must have at most {self.max_length:,} tokens, as many as the model reads"
                fix = "Give a larger --max-len, if the model's positions have no limit."
                raise config_error("--tasks: an answer", rule, f"{len(answer):,}", fix)
            self.unknown += self.texts.count_unknown(answer)
            read = [*context, *answer][-(self.max_length + 1) : -1]
            rows.setdefault(tuple(read), []).append(i)
        results: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        longest_first = sorted((row for row in rows if row), key=len, reverse=True)
        with in_precision(self.run) as model, evaluating(model):
            for some in self._batches(longest_first, "Likelihoods"):
                asked = [(row, i) for row, ids in enumerate(some) for i in rows[ids]]
                answers = [requests[i][2] for _, i in asked]
                numbers = [row for row, _ in asked]
                scores = self._scores(model, some, numbers, answers)
                for (_, i), score in zip(asked, scores, strict=True):
                    results[i] = score
        return results

    def _scores(
        self,
        model: Any,
        texts: Sequence[tuple[int, ...]],
        rows: Sequence[int],
        answers: Sequence[list[int]],
    ) -> Iterator[tuple[float, bool]]:
        """Yields (log p, whether greedy) of answers, whose predictions are the last ones of the
        text in its row.
        """
        tokens = self._padded(texts, "right")
        hidden, _ = model.hidden(tokens)
        at = [
            (row, len(texts[row]) - len(answer) + j)
            for row, answer in zip(rows, answers, strict=True)
            for j in range(len(answer))
        ]
        row, column = torch.tensor(at, dtype=torch.long).view(-1, 2).unbind(1)
        ids = torch.tensor([i for answer in answers for i in answer], dtype=torch.long)
        log_p, greedy = _log_probabilities(model, hidden[row, column], ids.to(hidden.device))
        sizes = [len(answer) for answer in answers]
        for some_log_p, some_greedy in zip(log_p.split(sizes), greedy.split(sizes), strict=True):
            yield float(some_log_p.sum()), bool(some_greedy.all())

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = True) -> list[str]:
        """Returns the continuation of each context, up to the first text of `until` or the end of
        the text; greedy unless the task has do_sample.

        requests: with `args` (context, options); options as `generation_kwargs` of a task.
        """
        groups: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            groups.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(i)
        results = [""] * len(requests)
        for options, members in groups.items():
            new, stops, sampling = self._generation_options(json.loads(options))
            room = self.max_length
            if self.run.model.max_seq_len is not None:
                room -= new
            contexts = {i: self._prompt(requests[i].args[0])[-room:] for i in members}
            longest_first = sorted(members, key=lambda i: -len(contexts[i]))
            for some in self._batches(longest_first, "Answers"):
                texts = self._continue([contexts[i] for i in some], new, stops, sampling)
                for i, text in zip(some, texts, strict=True):
                    results[i] = text
        return results

    def _prompt(self, context: str) -> list[int]:
        ids = self.tok_encode(context)
        return ids if ids or self.prefix is None else [self.prefix]

    def _generation_options(self, given: dict[str, Any]) -> tuple[int, list[str], dict[str, Any]]:
        """Returns (new tokens, texts after which to stop, options of `stream`). Raises ConfigError
        for an option that is not supported, or more tokens than the model has positions.
        """
        options = dict(normalize_gen_kwargs(given))
        new, until = options.pop("max_gen_toks"), options.pop("until", None) or []
        if not options.pop("do_sample", False):
            options["temperature"] = 0.0
        limit = self.run.model.max_seq_len
        if limit is not None and new >= limit:
            rule = f"max_gen_toks must be below the {limit:,} positions of the model"
            fix = "Set it in generation_kwargs of the task."
            raise config_error("--tasks", rule, got=new, fix=fix)
        for name in options.keys() - set(SAMPLING):
            rule = f"generation_kwargs: no option is called '{name}'"
            raise config_error("--tasks", rule, fix=suggestion(name, SAMPLING))
        stops = [until] if isinstance(until, str) else until
        return new, [stop for stop in stops if stop], options

    def _continue(
        self, contexts: Sequence[list[int]], new: int, stops: list[str], options: dict[str, Any]
    ) -> list[str]:
        """Returns the texts that continue contexts, each up to its first stop."""
        tokens = self._padded(contexts, "left")
        rows = [_Text(self.texts, stops, self.end) for _ in contexts]
        with in_precision(self.run) as model:
            for ids in stream(model, tokens.ids, new, real=tokens.real, **options):
                ended = [row.add(i) for row, i in zip(rows, ids.tolist(), strict=True)]
                if all(ended):
                    break
        return [row.finished() for row in rows]

    def _padded(self, rows: Sequence[Sequence[int]], side: str) -> Tokens:
        ids = [torch.tensor(row, dtype=torch.long) for row in rows]
        pad: Callable[[list[Tensor]], Tensor] = lambda some: pad_sequence(
            some, batch_first=True, padding_side=side
        ).to(device_of(self.run))
        real = pad([torch.ones_like(row, dtype=torch.bool) for row in ids])
        return Tokens(ids=pad(ids), real=None if bool(real.all()) else real)

    def _batches(self, items: Sequence[Any], title: str) -> Iterator[Sequence[Any]]:
        starts = range(0, len(items), self.batch_size)
        for start in tqdm(starts, desc=title, disable=None):
            yield items[start : start + self.batch_size]


class _Text:
    """A text that is generated token by token, up to the first of some stop texts, or `end`."""

    def __init__(self, tokenizer: Any, stops: list[str], end: int | None):
        self.stops, self.end, self.text, self.ended = stops, end, "", False
        self.decode = tokenizer.stream(continuation=True)

    def add(self, new: int) -> bool:
        """Appends a token; returns whether the text has ended."""
        if not self.ended:
            self.ended = new == self.end
            self.text += "" if self.ended else self.decode([new])
            self.ended = self.ended or any(stop in self.text for stop in self.stops)
        return self.ended

    def finished(self) -> str:
        text = self.text + self.decode.end()
        return min((text.partition(stop)[0] for stop in self.stops), key=len, default=text)


def _log_probabilities(model: Any, hidden: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """log p (n,) of ids (n,) from hidden states (n, dim), in float64, and whether each is the
    likeliest one; in chunks, so that all logits never exist at once.
    """
    step = max(1, CHUNK // model.vocab_size)
    log_p, greedy = [], []
    for h, i in zip(hidden.split(step), ids.split(step), strict=True):
        logits = model.head(h)
        scores = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        log_p.append(scores.gather(-1, i[:, None])[:, 0].double().cpu())
        greedy.append((scores.argmax(-1) == i).cpu())
    return torch.cat(log_p), torch.cat(greedy)
