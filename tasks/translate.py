"""Lines in, answers out: what a run of task=seq2seq says to sources that it is given as text."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xformer_kit.registry import ConfigError


def translate(
    model: Any, config: dict[str, Any], lines: Sequence[str], where: str = "--input", **options: Any
) -> list[str]:
    """One answer per source. options: beam, length_penalty, max_new_tokens, batch_size; None takes the run's own.

    Raises ConfigError for a source that the tokenizer cannot encode and for one that is too long, with its line.
    """
    from tasks.decoding import ROWS, answers

    given = {key: value for key, value in options.items() if value is not None}
    longest = config["data"]["seq_len"]
    objective = speaking_as(model, config)
    sources = [encoded_line(objective.source_tokenizer, line, f"{where}, line {i}") for i, line in enumerate(lines, 1)]
    for i, ids in enumerate(sources, 1):
        if len(ids) + 1 > longest:
            raise ConfigError(
                f"{where}, line {i}: must have at most {longest - 1} tokens (data.seq_len of the run, with its end); "
                f"got {len(ids)}. Split it."
            )
    beam = given.pop("beam", config["task"].get("beam", 1))
    how = {"beam": beam, "length_penalty": given.pop("length_penalty", 1.0)} if beam > 1 else {"temperature": 0.0}
    most, rows = given.pop("max_new_tokens", longest - 1), given.pop("batch_size", ROWS)
    examples = [{"source": ids, "target": ids[:0]} for ids in sources]
    found = answers(model, objective, examples, most=most, rows=rows, **how)
    return [model.tokenizer.decode(ids) for ids in found]


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
            f"--reference: must have a line for every source; got {len(references):,} and {len(sources):,}. "
            f"Line {min(len(sources), len(references)) + 1} has no partner."
        )
    return references


def encoded_line(tokenizer: Any, line: str, where: str) -> Any:
    try:
        return tokenizer.encode(line)
    except ConfigError as error:
        raise ConfigError(fault.replace("tokenizer:", f"{where}:", 1) for fault in error.faults) from None


def read_lines(path: str, option: str) -> list[str]:
    """The lines of a file of utf-8, or of stdin for `-`. Raises ConfigError with the position where it is none."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"{option}: must be a file that can be read; got {path} ({error.strerror}).") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{option}: {path} must be utf-8; got byte 0x{data[error.start]:02X} at position {error.start}."
        ) from None
    if not text:
        raise ConfigError(f"{option}: must hold at least one line; {path} is empty.")
    return text.removesuffix("\n").split("\n")
