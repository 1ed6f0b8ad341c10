"""Answers of a run of task=seq2seq to sources given as text, and the checks of a command's texts,
files and decoding options.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tasks import Config, State
from tasks.process.command_faults import faults_at, refuse
from xformer_kit.files.saved_files import is_special
from xformer_kit.registry import Fault, config_error
from xformer_kit.text.user_path import user_path

MAX_UNKNOWN_WORDS = 5  # listed in a message
SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "penalty_alpha")


def translate(
    run: Any, lines: Sequence[str], where: str = "--input", **options: Any
) -> list[list[tuple[str, float | None]]]:
    """Returns the answers to each source, the best first, each with its score of a beam search or
    None.

    options: those of `generate`, and batch_size; None: the default of the run. Raises ConfigError
    for a source that the tokenizer cannot encode or that is too long, with its line, and for an
    option out of its range.
    """
    from tasks.generation.decoding import generate_answers

    options = {key: value for key, value in options.items() if value is not None}
    refuse(_option_faults(options, options.get("beam", run.config["task"].get("beam", 1))))
    sources = encode_lines(run.objective.source_tokenizer, lines, where)
    for number, ids in enumerate(sources, 1):
        check_length(ids, run.config["data"]["seq_len"], line_path(where, number, lines))
    examples = [{"source": ids, "target": ids[:0]} for ids in sources]
    per_source = generate_answers(run, examples, **decoding_options(run.config, options))
    decode = run.objective.tokenizer.decode
    return [[(decode(answer.ids), answer.score) for answer in answers] for answers in per_source]


def line_path(where: str, line: int, lines: Sequence[str]) -> str:
    """The path of a fault in a text: the option, with the line number if there are several
    lines.
    """
    return f"{where}, line {line}" if len(lines) > 1 else where


def check_length(ids: Any, max_seq_len: int, where: str) -> None:
    """Raises ConfigError if a source with its end token is longer than max_seq_len."""
    if len(ids) + 1 > max_seq_len:
        raise config_error(
            where,
            f"must have at most {max_seq_len - 1} tokens (data.seq_len of the run, with its end)",
            got=len(ids),
            fix="Split it.",
        )


def decoding_options(config: Config, options: Config) -> State:
    """Returns the arguments of `generate_answers`: for sampling if there is a sampling option,
    otherwise for greedy decoding or the beam search of the run's validation, changed by the
    options. An option that is None has its default.
    """
    from tasks.generation.decoding import BATCH_SIZE

    arguments = {
        "max_new_tokens": config["data"]["seq_len"] - 1,
        "batch_size": BATCH_SIZE,
        **{key: value for key, value in options.items() if value is not None},
    }
    if arguments.keys() & set(SAMPLING_OPTIONS):
        return arguments
    arguments.setdefault("beam", config["task"].get("beam", 1))
    if arguments["beam"] == 1 and not arguments.keys() & {"length_penalty", "num_return"}:
        del arguments["beam"]
        return arguments | {"temperature": 0.0}
    return arguments


def _option_faults(options: State, beam: int) -> Iterator[Fault]:
    """Yields the faults of the decoding options of a command; beam: that of the command, otherwise
    of the run.
    """
    seed, penalty = options.get("seed"), options.get("length_penalty")
    if seed is not None and not options.keys() & set(SAMPLING_OPTIONS):
        fix = "Add --temperature 1, or leave it out."
        yield Fault("--seed", "is for texts that are drawn", got=seed, fix=fix)
    if penalty is not None and beam == 1:
        got, fix = f"{penalty} and one beam", "Add --beam 4, or leave it out."
        yield Fault("--length-penalty", "is of a beam search", got=got, fix=fix)


def check_references(sources: list[str], references: list[str]) -> list[str]:
    """Returns the references. Raises ConfigError if their number differs from that of the
    sources.
    """
    if len(sources) != len(references):
        raise config_error(
            "--reference",
            "must have a line for every source",
            got=f"{len(references):,} and {len(sources):,}",
            fix=(
                f"Line {min(len(sources), len(references)) + 1} of the longer file has no partner."
            ),
        )
    return references


def encode_line(tokenizer: Any, line: str, where: str) -> Any:
    """Returns the ids of one line, as `encode_lines` does."""
    (ids,) = encode_lines(tokenizer, [line], where)
    return ids


def encode_lines(tokenizer: Any, lines: Sequence[str], where: str) -> list[Any]:
    """Returns the ids of each line. The first unknown words are listed on stderr.

    Raises ConfigError, with the line, if the tokenizer cannot encode it.
    """
    encoded: list[Any] = []
    unknown: dict[str, None] = {}  # words, in their order
    for number, line in enumerate(lines, 1):
        with faults_at(line_path(where, number, lines)):
            encoded.append(tokenizer.encode(line))
        if tokenizer.count_unknown(encoded[-1]):
            words = [w for w in line.split() if tokenizer.count_unknown(tokenizer.encode(w))]
            unknown |= dict.fromkeys(words)
    if unknown:
        first = ", ".join(map(repr, islice(unknown, MAX_UNKNOWN_WORDS)))
        print(f"{where}: unknown words ({len(unknown):,}): {first}", file=sys.stderr)
    return encoded


def check_writable(path: str, option: str) -> Path:
    """Returns the path of a file that a command is going to write. Raises ConfigError if it cannot
    be written.
    """
    file = user_path(path)
    target = file if file.exists() else file.absolute().parent
    if file.is_dir() or not os.access(target, os.W_OK):
        raise config_error(option, "must be a file that can be written", got=path)
    return file


def read_lines(path: str, option: str) -> list[str]:
    """Returns the lines of a UTF-8 file, or of stdin for `-`, as a corpus reads them: without \\r
    before \\n, and without a byte-order mark. Raises ConfigError with the position if it is not
    text.
    """
    from xformer_kit.data.files import lines

    if is_special(path) and not path.startswith("/dev/"):  # /dev/fd/63 is a pipe of the shell
        raise config_error(option, "must be a regular file", path, "Save its text in a file.")
    with faults_at(option):
        texts = list(lines(user_path("/dev/stdin" if path == "-" else path)))
    if not texts:
        raise config_error(option, f"must hold at least one line; {path} is empty")
    return texts
