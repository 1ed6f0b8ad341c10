"""Answers of a run of task=seq2seq to sources that are given as text."""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tasks import Config, State
from tasks.run.faults import faults_at, refusal, refuse, too_small
from xformer_kit.registry import Fault

NAMED = 5  # unknown words that a command names
DRAWN = ("temperature", "top_k", "top_p", "min_p", "typical_p", "penalty_alpha")


def translations(
    run: Any, lines: Sequence[str], where: str = "--input", **options: Any
) -> list[list[tuple[str, float | None]]]:
    """The answers to each source, the best first, each with the score of a search or None.

    options: those of generate, and batch_size; None takes the run's own. Raises ConfigError for a
    source that the tokenizer cannot encode and for one that is too long, with its line, and for an
    option out of its range.
    """
    from tasks.run.generation.decoding import decode_answers

    given = {key: value for key, value in options.items() if value is not None}
    refuse(option_faults(given, given.get("beam", run.config["task"].get("beam", 1))))
    examples = questions(run, lines, where)
    found = decode_answers(run, examples, **decoding_options(run.config, options))
    decode = run.objective.tokenizer.decode
    return [[(decode(one.ids), one.score) for one in row] for row in found]


def questions(run: Any, lines: Sequence[str], where: str) -> list[State]:
    """Examples without an answer, of sources as text."""
    sources = encoded_lines(run.objective.source_tokenizer, lines, where)
    for i, ids in enumerate(sources, 1):
        at = f"{where}, line {i}" if where == "--input" else place(where, i, lines)
        check_length(ids, run.config["data"]["seq_len"], at)
    return [{"source": ids, "target": ids[:0]} for ids in sources]


def place(where: str, line: int, lines: Sequence[str]) -> str:
    """Where a text was given: an option, with the line if there are several."""
    return f"{where}, line {line}" if len(lines) > 1 else where


def check_length(ids: Any, longest: int, where: str) -> None:
    """Raises ConfigError for a source that has no room for its end."""
    if len(ids) + 1 > longest:
        raise refusal(
            where,
            f"must have at most {longest - 1} tokens (data.seq_len of the run, with its end)",
            got=len(ids),
            fix="Split it.",
        )


def decoding_options(config: Config, options: Config) -> State:
    """Arguments of `decode_answers`: greedy or with the run's beams, as in its validation, unless
    options are given; sampled if an option is about sampling.
    """
    from tasks.run.generation.decoding import ROWS

    how = {key: value for key, value in options.items() if value is not None}
    how = {
        "most": how.pop("max_new_tokens", config["data"]["seq_len"] - 1),
        "rows": how.pop("batch_size", ROWS),
    } | how
    if how.keys() & set(DRAWN):
        return how
    how.setdefault("beam", config["task"].get("beam", 1))
    if how["beam"] == 1 and not how.keys() & {"length_penalty", "num_return"}:
        del how["beam"]
        return how | {"temperature": 0.0}
    return how


def option_faults(given: State, beam: int) -> Iterator[Fault]:
    """Faults of what is given of a command's options for answers; `beam`: of the command or of the
    run.
    """
    yield from too_small(given, beam=1, batch_size=1, max_new_tokens=1)
    seed, penalty = given.get("seed"), given.get("length_penalty")
    if seed is not None and not given.keys() & set(DRAWN):
        fix = "Add --temperature 1, or leave it out."
        yield Fault("--seed", "is for texts that are drawn", got=seed, fix=fix)
    if penalty is not None and not math.isfinite(penalty):
        yield Fault("--length-penalty", "must be a finite number", got=penalty)
    elif penalty is not None and beam == 1:
        got, fix = f"{penalty} and one beam", "Add --beam 4, or leave it out."
        yield Fault("--length-penalty", "is of a beam search", got=got, fix=fix)


def partners(sources: list[str], references: list[str]) -> list[str]:
    """The references. Raises ConfigError where they are not as many as the sources."""
    if len(sources) != len(references):
        raise refusal(
            "--reference",
            "must have a line for every source",
            got=f"{len(references):,} and {len(sources):,}",
            fix=(
                f"Line {min(len(sources), len(references)) + 1} of the longer file has no partner."
            ),
        )
    return references


def encoded_line(tokenizer: Any, line: str, where: str) -> Any:
    """The ids of one line, as `encoded_lines` gives them."""
    (ids,) = encoded_lines(tokenizer, [line], where)
    return ids


def encoded_lines(tokenizer: Any, lines: Sequence[str], where: str) -> list[Any]:
    """The ids of each line. Unknown words are listed once on stderr, with their lines.

    Raises ConfigError, with the line, if the tokenizer has no token for them.
    """
    found: list[Any] = []
    unknown: dict[str, int] = {}  # word -> the first line that has it
    for i, line in enumerate(lines, 1):
        with faults_at(place(where, i, lines)):
            found.append(tokenizer.encode(line))
        if tokenizer.count_unknown(found[-1]):
            words = (word for word in line.split() if word not in unknown)
            count = lambda word: tokenizer.count_unknown(tokenizer.encode(word))
            unknown |= {word: i for word in words if count(word)}
    if unknown:
        print(f"{where}: {_named(unknown, tokenizer, len(lines) > 1)}", file=sys.stderr)
    return found


def _named(unknown: dict[str, int], tokenizer: Any, several: bool) -> str:
    """The message on unknown words, at most NAMED of them; with their lines if there are
    `several`.
    """
    said = [
        f"{word!r}{f' (line {line})' if several else ''}"
        for word, line in list(unknown.items())[:NAMED]
    ]
    said += [f"{len(unknown) - NAMED:,} more"] if len(unknown) > NAMED else []
    words = ", ".join(said[:-1]) + (" and " if said[1:] else "") + said[-1]
    what = tokenizer.join([tokenizer.unknown_id]).decode("utf-8", "replace").strip() or "unknown"
    are = "are" if len(unknown) > 1 else "is"
    return f"the run has not learned {words}, which {are} read as {what}."


def writable(path: str, option: str) -> Path:
    """The path of a file that a command will write. Raises ConfigError, before any work, if it
    cannot be written.
    """
    file = Path(path).expanduser()
    there = file if file.exists() else file.absolute().parent
    if not there.exists():
        reason = "there is no such directory"
    elif file.is_dir():
        reason = "it is a directory"
    elif not os.access(there, os.W_OK):
        reason = "permission denied"
    else:
        return file
    raise refusal(option, "must be a file that can be written", got=f"{path} ({reason})")


def read_lines(path: str, option: str) -> list[str]:
    """The lines of a UTF-8 file, or of stdin for `-`, as a corpus reads them: without \\r before
    \\n, and without a byte-order mark. Raises ConfigError with the position if it is not text.
    """
    from xformer_kit.data.files import lines

    with faults_at(option):
        found = list(lines(Path("/dev/stdin" if path == "-" else path).expanduser()))
    if not found:
        raise refusal(option, f"must hold at least one line; {path} is empty")
    return found
