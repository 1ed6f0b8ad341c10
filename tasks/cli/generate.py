"""Generate text with a run's model: continue a text, answer sources, fill the masks of a text, or
label texts.

The run's task determines which. A language model continues --prompt, which is written first, and
tokens appear as they are generated. task=seq2seq answers --prompt or the lines of --input. Masked
language models and denoisers replace each <mask> of --prompt or --input: by one token, or by a
span. task=classification and task=regression write the label of --prompt, with the probability of
each class, or of each line of --input.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from tasks import State
from tasks.cli.command import CHECKPOINT_OPTION, load_run, open_run
from tasks.process.command_faults import (
    faults_at_flags,
    flag,
    refuse,
    too_small,
)
from xformer_kit.registry import ConfigError, Fault, Faults, config_error
from xformer_kit.text.command_lines import xformer
from xformer_kit.text.printable import printable
from xformer_kit.text.user_path import user_path

SUMMARY = "continue a text with a run's model, answer sources, fill masks, or label texts"
EXAMPLES = """examples:
  xformer generate outputs/decoder/2026-11-20_12-00-00 --prompt "The "
  xformer generate outputs/decoder/2026-11-20_12-00-00 --prompt - --temperature 0 < prompt.txt
  xformer generate outputs/decoder/2026-11-20_12-00-00 --prompt "The " --top-k 4 --penalty-alpha 0.6
  xformer generate outputs/scan/2026-11-20_12-00-00 --prompt "jump twice"
  xformer generate RUN --interactive --temperature 0.8
  xformer generate RUN --input test.en --output test.hyp --beam 5
  xformer generate RUN --prompt "Good morning" --beam 5 --num-samples 3 --scores
  xformer generate RUN --prompt "The <mask> of a function" --top-k 5"""
OPTIONS = {
    "run RUN": "a run's directory, or latest",
    "--prompt! TEXT": (
        "the text to continue or to label, the source, or a text with <mask>; - reads it from stdin"
    ),
    "--input! FILE": (
        "sources or texts, one per line, as are the answers or labels; - reads stdin"
    ),
    "--interactive!": "one prompt after another from the keyboard, each by itself; Ctrl-D ends",
    "--output FILE": "output file (stdout)",
    "--beam N": "beams of a search, 1: greedy (as in the run)",
    "--length-penalty A": "a beam's score is divided by length^A (1.0)",
    "--batch-size N": "sources at a time (64)",
    "--max-new-tokens N": "tokens to write (200; of an answer: data.seq_len)",
    "--min-new-tokens N": "tokens to write before the end token is possible",
    "--temperature T": "divides the logits; 0 takes the likeliest token (1.0; an answer is greedy)",
    "--top-k K": "draw from the K likeliest tokens; of a <mask>: tokens to show (5)",
    "--top-p P": "draw from the likeliest tokens that have probability P together",
    "--min-p P": "draw from tokens with at least this share of the likeliest one's probability",
    "--typical-p P": "draw from the tokens nearest to the entropy that have probability P together",
    "--penalty-alpha A": (
        "contrastive search among --top-k tokens: weight of the similarity to earlier tokens"
    ),
    "--repetition-penalty P": "above 1: makes earlier tokens less likely",
    "--no-repeat-ngram N": "no sequence of N tokens is repeated",
    "--seed N": "the same seed draws the same texts",
    "--num-samples N": "texts for each prompt: drawn, or the best of --beam (1)",
    "--stop* TEXT": "a text after which to stop; may be repeated",
    "--constrain TEXT": "generate only tokens of this text, such as 0123456789-",
    "--scores": (
        "each text after its score and a tab: its log-probability in nats over length^A"
        " (needs --beam)"
    ),
    **CHECKPOINT_OPTION,
}

SAMPLING = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "penalty_alpha"),
    *("repetition_penalty", "no_repeat_ngram"),
)
TOKEN_OPTIONS = ("max_new_tokens", *SAMPLING, "constrain", "seed", "num_samples")
SPAN_OPTIONS = (
    *("input", "output", *TOKEN_OPTIONS, "min_new_tokens", "beam", "length_penalty"),
    *("batch_size", "scores"),
)
ALL_OPTIONS = (*SPAN_OPTIONS, "stop")


def run(args: Any) -> int:
    from tasks.generation.translation import check_writable, read_lines
    from xformer_kit.objective import OBJECTIVES

    _, config = open_run(args.run, args.components)
    task = config["task"]["name"]
    text_use = OBJECTIVES[task].text_use
    refuse(_option_faults(args, text_use, task))
    lines = [] if args.prompt is None else [_read_prompt(args.prompt)]
    if args.input is not None:
        lines = read_lines(args.input, "--input")
    if args.output is not None:
        check_writable(args.output, "--output")
    loaded = load_run(args)
    for prompts in _typed_lines() if args.interactive else [lines]:
        try:
            with faults_at_flags(vars(args)):
                TEXT_USES[text_use].generate(args, loaded, prompts)
        except ConfigError as error:
            if not args.interactive:
                raise
            print(error, file=sys.stderr)
    return 0


def _typed_lines() -> Iterator[list[str]]:
    """Yields [line] for each line of stdin that is not blank, as it is typed, until its end or
    Ctrl-C.
    """
    from contextlib import suppress

    with suppress(ImportError):
        import readline  # noqa: F401  # arrow keys and earlier lines in input()

    terminal = sys.stdin.isatty()
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            if (line := input("> " if terminal else "")).strip():
                yield [line]
    if terminal:
        print()


def _option_faults(args: Any, text_use: str, task: str) -> Faults:
    """Yields the faults of options that have no effect on a run of this task, and of numbers that
    `generate` does not check.
    """
    yield from too_small(vars(args), batch_size=1, top_k=1)
    if text_use not in TEXT_USES:
        line = xformer("evaluate", args.run, components=args.components)
        yield Fault(args.run, f"a run of task={task} generates no text", fix=f"Try: {line}")
        return
    use = TEXT_USES[text_use]
    if args.interactive and args.output is not None:
        rule = "is for --prompt and --input; --interactive writes to the terminal"
        yield Fault("--output", rule, fix="Leave it out.")
        return
    for name in ALL_OPTIONS:
        if getattr(args, name) is not None and name not in use.options:
            fix = "Leave it out."
            if name == "input":
                fix = "Use --prompt TEXT, or --prompt - < FILE for the text of a file."
            rule = f"is not for a run of task={task}, which {use.description}"
            yield Fault(flag(name), rule, fix=fix)


def _input_option(args: Any) -> str:
    return "--prompt" if args.input is None else "--input"


def _generate_options(args: Any, tokenizer: Any) -> State:
    """Returns the arguments of `generate` that the command line sets."""
    from tasks.generation.translation import encode_line

    names = ("max_new_tokens", "min_new_tokens", "beam", "length_penalty", "stop", "seed")
    options = {
        name: getattr(args, name) for name in (*names, *SAMPLING) if getattr(args, name) is not None
    }
    if args.constrain is not None:
        ids = encode_line(tokenizer, args.constrain, "--constrain")
        if not len(ids) or tokenizer.count_unknown(ids):
            raise config_error(
                "--constrain",
                "must hold tokens of the run's tokenizer only",
                got=repr(args.constrain),
            )
        options["allowed"] = sorted({int(i) for i in ids})
    return options


def _continue_text(args: Any, run: Any, lines: list[str]) -> None:
    """Write the prompt and its continuations, token by token."""
    from xformer_kit.generate import stream

    (prompt,), count = lines, args.num_samples or 1
    options: State = {"max_new_tokens": 200} | _generate_options(args, run.objective.tokenizer)
    ids, seed = _encode_prompt(run, prompt), options.pop("seed", None)
    if count > 1 and (args.temperature == 0 or args.penalty_alpha is not None):
        raise config_error(
            "--num-samples",
            "nothing is drawn, so all texts are the same",
            got=count,
            fix="Try --temperature 1.",
        )
    for i in range(count):
        tokens = stream(run.model, ids, seed=None if seed is None else seed + i, **options)
        if i:
            _write("-" * 8 + "\n")
        _write(prompt)
        decode: Any = run.objective.tokenizer.stream(continuation=True)
        for token in tokens:  # (1,)
            _write(decode(token.tolist()))
        _write(decode.end() + "\n")


def _answer_sources(args: Any, run: Any, lines: list[str]) -> None:
    """Write the answers to sources, or the texts with their masks replaced by spans."""
    from tasks.generation.infilling import restore_spans
    from tasks.generation.translation import decoding_options, translate

    options = _generate_options(args, run.objective.tokenizer) | {"batch_size": args.batch_size}
    if args.num_samples is not None and args.num_samples > 1:
        options["num_return"] = args.num_samples
    decoding = decoding_options(run.config, options)
    if args.scores and "beam" not in decoding:
        raise config_error(
            "--scores",
            "are those of a beam search, and there is none",
            fix="Add --beam 4, or leave it out.",
        )
    if run.objective.text_use == "restores":
        answers = restore_spans(run, lines, _input_option(args), **decoding)
    else:
        answers = translate(run, lines, _input_option(args), **options)
    texts = (f"{score:.4f}\t{text}" if args.scores else text for (text, score) in chain(*answers))
    _write_texts(args, list(texts))


def _fill_masks(args: Any, run: Any, lines: list[str]) -> None:
    """Write the texts with the most likely token in place of each mask; with --prompt, also the
    candidates for each mask.
    """
    from tasks.generation.infilling import fill_masks

    filled = fill_masks(run, lines, args.top_k or 5, _input_option(args))
    texts = [one.text for one in filled]
    if args.input is None:
        masks = filled[0].likely
        for i, candidates in enumerate(masks, 1):
            texts += ["", f"<mask> {i}" if len(masks) > 1 else "<mask>"]
            texts += [
                f"{100 * p:7.2f} %  {token.strip() or repr(token)}" for token, p in candidates
            ]
    _write_texts(args, texts)


def _label_texts(args: Any, run: Any, lines: list[str]) -> None:
    """Write the label of each text; with --prompt, all classes and their probabilities."""
    from tasks.generation.labels import label_texts

    labels = label_texts(run, lines, _input_option(args), args.batch_size)
    if args.input is None:
        rows = labels[0]
        texts = [text if p is None else f"{100 * p:7.2f} %  {text}" for text, p in rows]
    else:
        texts = [rows[0][0] for rows in labels]
    _write_texts(args, texts)


def _write_texts(args: Any, texts: list[str]) -> None:
    """Write texts to --output or stdout. With --input each is one line: its line breaks become
    spaces.
    """
    if args.input is not None:
        texts = [text.replace("\n", " ") for text in texts]
    output = "\n".join(texts) + "\n"
    if args.output is None:
        _write(output)
    else:
        user_path(args.output).write_text(output, encoding="utf-8")


def _read_prompt(prompt: str) -> str:
    """Returns the text of --prompt, or for - that of stdin without its last line break. Raises
    ConfigError for an empty one.
    """
    if prompt == "-":
        prompt = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").removesuffix("\n")
    if not prompt:
        raise config_error(
            "--prompt",
            "must hold at least one character",
            got="an empty text",
            fix='Try --prompt "The ".',
        )
    return prompt


def _encode_prompt(run: Any, prompt: str) -> Any:
    """Returns the prompt's ids (1, t) on the model's device; lists unknown words on stderr. Raises
    ConfigError if the tokenizer cannot encode the prompt.
    """
    import torch

    from tasks.generation.decoding import device_of
    from tasks.generation.translation import encode_line

    tokenizer = run.objective.tokenizer
    ids = tokenizer.with_start(encode_line(tokenizer, prompt, "--prompt"))
    if not len(ids):
        raise config_error(
            "--prompt",
            "must hold at least one token",
            got="white space, for which this tokenizer has no token",
        )
    return torch.from_numpy(ids)[None].to(device_of(run))


def _write(text: str) -> None:
    """Write a text to stdout as UTF-8 in any locale; bytes of the prompt that were not UTF-8 are
    written unchanged. Control characters are not written to a terminal, since the model may be
    untrusted.
    """
    sys.stdout.flush()
    text = printable(text) if sys.stdout.isatty() else text
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


class TextUse(NamedTuple):
    """What `xformer generate` does with runs of some tasks."""

    options: tuple[str, ...]
    description: str
    generate: Callable[[Any, Any, list[str]], None]  # of the arguments, the run and the lines


# Objective.text_use -> what `xformer generate` does.
TEXT_USES = {
    "goes on": TextUse((*TOKEN_OPTIONS, "stop"), "continues a text", _continue_text),
    "answers": TextUse(ALL_OPTIONS, "answers sources", _answer_sources),
    "restores": TextUse(SPAN_OPTIONS, "writes the spans of a text", _answer_sources),
    "fills": TextUse(
        ("input", "output", "top_k"), "shows the likeliest tokens of each <mask>", _fill_masks
    ),
    "labels": TextUse(("input", "output", "batch_size"), "labels texts", _label_texts),
}
