"""Generate text with a run's model: continue a text, answer sources, or fill the holes of a text.

What a run does depends on its task. A language model continues --prompt, which is written first,
and tokens appear as they are generated. task=seq2seq answers --prompt or the lines of --input.
Masked language models and denoisers write what each <mask> of --prompt or --input stands for: one
token, or a span.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks import State
from tasks.cli.command import load_run, open_run
from tasks.run.faults import flag, refuse, too_small
from xformer_kit.registry import ConfigError, config_error
from xformer_kit.registry.printable import printable

SUMMARY = "continue a text with a run's model, answer sources, or fill masks"
EXAMPLES = """examples:
  xformer generate outputs/decoder/2026-11-20_12-00-00 --prompt "The "
  xformer generate outputs/decoder/2026-11-20_12-00-00 --prompt - --temperature 0 < prompt.txt
  xformer generate outputs/decoder/2026-11-20_12-00-00 --prompt "The " --top-k 4 --penalty-alpha 0.6
  xformer generate outputs/scan/2026-11-20_12-00-00 --prompt "jump twice"
  xformer generate RUN --input test.en --output test.hyp --beam 5
  xformer generate RUN --prompt "Good morning" --beam 5 --num-samples 3 --scores
  xformer generate RUN --prompt "The <mask> of a function" --top-k 5"""
OPTIONS = {
    "run RUN": "a run's directory",
    "--prompt! TEXT": (
        "the text to continue, the source, or a text with <mask> in it; - reads it from stdin"
    ),
    "--input! FILE": (
        "sources, or texts with <mask>, one a line, and so are the answers; - is stdin"
    ),
    "--output FILE": "output file (stdout)",
    "--beam N": "beams of a search, 1: greedy (as in the run)",
    "--length-penalty A": "a beam's score is divided by length^A (1.0)",
    "--batch-size N": "sources at a time (64)",
    "--max-new-tokens N": "tokens to write (200; of an answer: data.seq_len)",
    "--min-new-tokens N": "tokens to write before the end may come",
    "--temperature T": "divides the logits; 0 takes the likeliest token (1.0; an answer is greedy)",
    "--top-k K": "draw from the K likeliest tokens; of a <mask>: show so many (5)",
    "--top-p P": "draw from the likeliest tokens that have probability P together",
    "--min-p P": "draw from tokens with at least this share of the likeliest one's probability",
    "--typical-p P": "draw from the tokens nearest to the entropy that have probability P together",
    "--penalty-alpha A": (
        "contrastive search among --top-k tokens: weight of the similarity to earlier tokens"
    ),
    "--repetition-penalty P": "above 1: makes earlier tokens less likely",
    "--no-repeat-ngram N": "no sequence of N tokens comes twice",
    "--seed N": "the same seed draws the same texts",
    "--num-samples N": "texts for each prompt: drawn, or the best of --beam (1)",
    "--stop* TEXT": "a text after which to stop; may be repeated",
    "--constrain TEXT": "generate only tokens of this text, such as 0123456789-",
    "--scores": (
        "each text after its score and a tab: its log-probability in nats over length^A"
        " (needs --beam)"
    ),
    "--checkpoint last|previous|best": (
        "which weights (best; another if that one is missing or damaged)"
    ),
}

DRAWS = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "penalty_alpha"),
    *("repetition_penalty", "no_repeat_ngram"),
)
TOKENS = ("max_new_tokens", *DRAWS, "constrain", "seed", "num_samples")
SPANS = (
    *("input", "output", *TOKENS, "min_new_tokens", "beam", "length_penalty", "batch_size"),
    "scores",
)
TAKES = {  # what a task generates: its options, and a description
    "goes on": ((*TOKENS, "stop"), "goes on with a text"),
    "answers": ((*SPANS, "stop"), "answers sources"),
    "restores": (SPANS, "writes the spans of a text"),
    "fills": (("input", "output", "top_k"), "shows the likeliest tokens of each <mask>"),
}
# Options of `xformer_kit.generate` that a command line has under another name.
NAMES = {"num_return": "num_samples", "allowed": "constrain"}


def run(args: Any) -> int:
    from tasks.run.generation.translation import check_writable, read_lines
    from xformer_kit.objective import OBJECTIVES

    _check(args)
    lines = None if args.prompt is None else [_prompt(args.prompt)]
    _, config = open_run(args.run, args.components)
    speaks = OBJECTIVES[config["task"]["name"]].text_use
    _suits(args, speaks, config["task"]["name"])
    lines = lines or read_lines(args.input, "--input")
    if args.output is not None:
        check_writable(args.output, "--output")
    loaded = load_run(args)
    speak = {"goes on": _go_on, "fills": _fill}.get(speaks, _answer)
    try:
        speak(args, loaded, lines)
    except ConfigError as error:
        own = {**dict.fromkeys(TAKES["answers"][0]), **NAMES}
        raise ConfigError(
            replace(fault, path=flag(own[fault.path] or fault.path)) if fault.path in own else fault
            for fault in error.faults
        ) from None
    return 0


def _check(args: Any) -> None:
    """What every task refuses. Raises ConfigError."""
    counts = ("num_samples", "beam", "batch_size", "max_new_tokens", "top_k")
    refuse(too_small(vars(args), **dict.fromkeys(counts, 1)))
    if args.seed is not None and not 0 <= args.seed < 2**63:
        raise config_error("--seed", "must be at least 0 and below 2^63", got=args.seed)


def _suits(args: Any, speaks: str, task: str) -> None:
    """Raises ConfigError for an option that means nothing to a run of this task: better refused
    than ignored.
    """
    if speaks not in TAKES:
        raise config_error(
            args.run, f"a run of task={task} does nothing with a text", fix="Try xformer evaluate."
        )
    taken, does = TAKES[speaks]
    for name in TAKES["answers"][0]:
        if getattr(args, name) is not None and name not in taken:
            way = "Use --prompt." if name == "input" else "Leave it out."
            raise config_error(
                flag(name), f"is not for a run of task={task}, which {does}", fix=way
            )


def _where(args: Any) -> str:
    return "--prompt" if args.input is None else "--input"


def _wanted(args: Any, tokenizer: Any) -> State:
    """The options of `generate` that the command line states."""
    from tasks.run.generation.translation import encode_line

    names = ("max_new_tokens", "min_new_tokens", "beam", "length_penalty", "stop", "seed", *DRAWS)
    found = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.constrain is not None:
        ids = encode_line(tokenizer, args.constrain, "--constrain")
        if not len(ids) or tokenizer.count_unknown(ids):
            raise config_error(
                "--constrain",
                "must hold tokens of the run's tokenizer only",
                got=repr(args.constrain),
            )
        found["allowed"] = sorted({int(i) for i in ids})
    return found


def _go_on(args: Any, run: Any, lines: list[str]) -> None:
    """The prompt and its continuations, each token as it comes."""
    from xformer_kit.generate import stream

    (prompt,), many = lines, args.num_samples or 1
    wanted: State = {"max_new_tokens": 200} | _wanted(args, run.objective.tokenizer)
    ids, first = _encoded(run, prompt), wanted.pop("seed", None)
    if many > 1 and (args.temperature == 0 or args.penalty_alpha is not None):
        raise config_error(
            "--num-samples",
            "nothing is drawn, so all texts are the same",
            got=many,
            fix="Try --temperature 1.",
        )
    for i in range(many):
        tokens = stream(run.model, ids, seed=None if first is None else first + i, **wanted)
        if i:
            _write("-" * 8 + "\n")
        _write(prompt)
        _stream(run.objective.tokenizer.stream(continuation=True), tokens)


def _answer(args: Any, run: Any, lines: list[str]) -> None:
    """The answers to sources, or texts with their spans written."""
    from tasks.run.generation.infilling import restore_spans
    from tasks.run.generation.translation import decoding_options, translate

    wanted = _wanted(args, run.objective.tokenizer) | {"batch_size": args.batch_size}
    if args.num_samples is not None and args.num_samples > 1:
        wanted["num_return"] = args.num_samples
    how = decoding_options(run.config, wanted)
    if args.scores and "beam" not in how:
        raise config_error(
            "--scores",
            "are those of a search, and there is none",
            fix="Add --beam 4, or leave it out.",
        )
    if run.objective.text_use == "restores":
        found = restore_spans(run, lines, _where(args), **how)
    elif args.input is None and args.output is None and not how.keys() & {"beam", "num_return"}:
        return _stream_answer(run, lines, how)
    else:
        found = translate(run, lines, _where(args), **wanted)
    said = [f"{score:.4f}\t{text}" if args.scores else text for row in found for text, score in row]
    _put(args, said)


def _stream_answer(run: Any, lines: list[str], how: State) -> None:
    """One answer, each token as it comes."""
    from tasks.run.generation.decoding import generate_arguments, max_answer_tokens
    from tasks.run.generation.translation import source_examples
    from xformer_kit.generate import stream

    (question,) = source_examples(run, lines, "--prompt")
    prompt = run.objective.pair(question["source"], question["target"])
    given = generate_arguments(run, [prompt])
    most = min(how.pop("max_new_tokens"), max_answer_tokens(run.model, prompt))
    del how["batch_size"]
    tokens = stream(run.model, max_new_tokens=most, **given, **how)
    _stream(
        run.objective.tokenizer.stream(), (token for token in tokens if int(token) != given["end"])
    )


def _fill(args: Any, run: Any, lines: list[str]) -> None:
    """The texts with the most likely token in each hole; after that of --prompt, the candidates of
    each hole.
    """
    from tasks.run.generation.infilling import fill_masks

    found = fill_masks(run, lines, args.top_k or 5, _where(args))
    said = [one.text for one in found]
    if args.input is None:
        for i, hole in enumerate(found[0].likely, 1):
            said += ["", f"<mask> {i}" if len(found[0].likely) > 1 else "<mask>"]
            said += [f"{100 * p:7.2f} %  {token.strip() or repr(token)}" for token, p in hole]
    _put(args, said)


def _put(args: Any, texts: list[str]) -> None:
    """Texts to --output or stdout; those of a file one a line, so that line ends in them become
    spaces.
    """
    if args.input is not None:
        texts = [text.replace("\n", " ") for text in texts]
    if args.output is None:
        _write("\n".join(texts) + "\n")
    else:
        Path(args.output).expanduser().write_text("\n".join(texts) + "\n", encoding="utf-8")


def _prompt(given: str) -> str:
    """The text of --prompt, or of stdin without its last line end. Raises ConfigError for an empty
    one.
    """
    if given == "-":
        given = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").removesuffix("\n")
    if not given:
        raise config_error(
            "--prompt",
            "must hold at least one character",
            got="an empty text",
            fix='Try --prompt "The ".',
        )
    return given


def _encoded(run: Any, prompt: str) -> Any:
    """The prompt's ids (1, t), on the model's device. Raises ConfigError for characters that are
    not known.
    """
    import torch

    from tasks.run.generation.decoding import device_of
    from tasks.run.generation.translation import encode_line

    encoded = encode_line(run.objective.tokenizer, prompt, "--prompt")
    if not len(encoded):
        raise config_error(
            "--prompt",
            "must hold at least one token",
            got="white space, of which this tokenizer has none",
        )
    return torch.tensor([[int(i) for i in encoded]], device=device_of(run))


def _stream(decode: Any, tokens: Any) -> None:
    """Tokens (1,) as text, each as it comes."""
    for token in tokens:
        _write(decode(token.tolist()))
    _write(decode.end() + "\n")


def _write(text: str) -> None:
    """Text as utf-8, whatever the locale; bytes of the prompt that were no utf-8 come out as they
    went in. A terminal gets no control characters: the text may be that of a foreign model.
    """
    sys.stdout.flush()
    text = printable(text) if sys.stdout.isatty() else text
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
