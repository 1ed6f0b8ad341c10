"""Lines in, answers out: what a run of task=seq2seq says to sources that it is given as text."""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from xformer_kit.registry import ConfigError

NAMED = 5  # unknown words that a command names
DRAWN = ("temperature", "top_k", "top_p", "min_p", "typical_p", "penalty_alpha")


def translate(
    model: Any, config: dict[str, Any], lines: Sequence[str], where: str = "--input", **options: Any
) -> list[str]:
    """The first answer to each source. options: as in `translations`."""
    return [row[0][0] for row in translations(model, config, lines, where, **options)]


def translations(
    model: Any, config: dict[str, Any], lines: Sequence[str], where: str = "--input", **options: Any
) -> list[list[tuple[str, float | None]]]:
    """The answers to each source, the best first, each with the score of a search or None.

    options: those of generate, and batch_size; None takes the run's own. Raises ConfigError for a
    source that the tokenizer cannot encode and for one that is too long, with its line, and for an
    option out of its range.
    """
    from tasks.generation.decoding import spoken

    given = {key: value for key, value in options.items() if value is not None}
    if faults := list(option_faults(given, given.get("beam", config["task"].get("beam", 1)))):
        raise ConfigError(faults)
    objective = speaking_as(model, config)
    examples = questions(objective, config, lines, where)
    found = spoken(model, objective, examples, **manner(config, options))
    return [[(model.tokenizer.decode(one.ids), one.score) for one in row] for row in found]


def questions(
    objective: Any, config: dict[str, Any], lines: Sequence[str], where: str
) -> list[dict[str, Any]]:
    """Examples without an answer, of sources as text."""
    longest = config["data"]["seq_len"]
    places = [
        f"{where}, line {i}" if len(lines) > 1 or where == "--input" else where
        for i in range(1, len(lines) + 1)
    ]
    sources = encoded_lines(objective.source_tokenizer, lines, where)
    for ids, at in zip(sources, places, strict=True):
        if len(ids) + 1 > longest:
            raise ConfigError(
                f"{at}: must have at most {longest - 1} tokens (data.seq_len of the run, with its"
                f" end); got {len(ids)}. Split it."
            )
    return [{"source": ids, "target": ids[:0]} for ids in sources]


def manner(config: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """What `decoding.spoken` is given: as the run answered in validation, greedy or with its beams,
    where nothing is asked for; drawn where an option asks for a draw.
    """
    from tasks.generation.decoding import ROWS

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


def option_faults(given: dict[str, Any], beam: int) -> Iterator[str]:
    """Sentences on what is given of a command's options for answers; `beam`: of the command or of
    the run.
    """
    for name in ("beam", "batch_size", "max_new_tokens"):
        if given.get(name, 1) < 1:
            yield f"--{name.replace('_', '-')}: must be at least 1; got {given[name]}."
    if given.get("seed") is not None and not given.keys() & set(DRAWN):
        yield (
            f"--seed: is for texts that are drawn; got {given['seed']}. Add --temperature 1, or"
            " leave it out."
        )
    penalty = given.get("length_penalty")
    if penalty is not None and not math.isfinite(penalty):
        yield f"--length-penalty: must be a finite number; got {penalty}."
    elif penalty is not None and beam == 1:
        yield (
            f"--length-penalty: is of a beam search; got {penalty} and one beam. Add --beam 4, or"
            " leave it out."
        )


def speaking_as(model: Any, config: dict[str, Any]) -> Any:
    """The objective of a run, with the tokenizers of its loaded model."""
    from xformer_kit.objective import objective_of

    objective = objective_of(config)
    objective.tokenizer = model.tokenizer
    objective.source_tokenizer = getattr(model, "source_tokenizer", None) or model.tokenizer
    return objective


def partners(sources: list[str], references: list[str]) -> list[str]:
    """The references. Raises ConfigError where they are not as many as the sources."""
    if len(sources) != len(references):
        raise ConfigError(
            f"--reference: must have a line for every source; got {len(references):,} and"
            f" {len(sources):,}. Line {min(len(sources), len(references)) + 1} of the longer file"
            " has no partner."
        )
    return references


def encoded_line(tokenizer: Any, line: str, where: str) -> Any:
    """The ids of one line, as `encoded_lines` gives them."""
    (ids,) = encoded_lines(tokenizer, [line], where)
    return ids


def encoded_lines(tokenizer: Any, lines: Sequence[str], where: str) -> list[Any]:
    """The ids of each line. Words that the tokenizer does not know are named once on stderr, with
    their lines.

    Raises ConfigError, with the line, where the tokenizer has no token for them.
    """
    found: list[Any] = []
    unknown: dict[str, int] = {}  # word -> the first line that has it
    for i, line in enumerate(lines, 1):
        try:
            found.append(tokenizer.encode(line))
        except ConfigError as error:
            at = f"{where}, line {i}" if len(lines) > 1 else where
            faults = [fault.replace("tokenizer:", f"{at}:", 1) for fault in error.faults]
            raise ConfigError(faults) from None
        if tokenizer.count_unknown(found[-1]):
            unknown |= {word: i for word in unknown_words(tokenizer, line) if word not in unknown}
    if unknown:
        print(f"{where}: {_named(unknown, tokenizer, len(lines) > 1)}", file=sys.stderr)
    return found


def unknown_words(tokenizer: Any, text: str) -> list[str]:
    """The words of a text, between white space, that hold something that the tokenizer does not
    know.
    """
    return [
        word
        for word in dict.fromkeys(text.split())
        if tokenizer.count_unknown(tokenizer.encode(word))
    ]


def _named(unknown: dict[str, int], tokenizer: Any, several: bool) -> str:
    """The sentence on unknown words, of which at most NAMED are named; with their lines where there
    are `several`.
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
    """The file that a command is to write, which is not made yet. Raises ConfigError where it
    cannot be, before any work.
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
    raise ConfigError(f"{option}: must be a file that can be written; got {path} ({reason}).")


def read_lines(path: str, option: str) -> list[str]:
    """The lines of a file of utf-8, or of stdin for `-`, as a corpus reads them: without \\r before
    \\n, and without a byte-order mark. Raises ConfigError with the position where it is no text.
    """
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{option}: must be a file that can be read; got {path} ({error.strerror})."
        ) from None
    if b"\0" in data:
        raise ConfigError(
            f"{option}: {path} must be text; got a NUL byte at position {data.index(0)}."
        )
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{option}: {path} must be utf-8; got byte 0x{data[error.start]:02X} at position"
            f" {error.start}."
        ) from None
    if not text:
        raise ConfigError(f"{option}: must hold at least one line; {path} is empty.")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
