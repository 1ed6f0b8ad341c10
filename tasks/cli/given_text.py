"""The windows of a text that is not of a run's corpus, for `xformer evaluate RUN --input`."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks import Config
from tasks.process.command_faults import changed_faults, refuse
from xformer_kit.data import files
from xformer_kit.data.corpus.base import missing_package
from xformer_kit.data.corpus.records import CSV, JSONLines, Parquet
from xformer_kit.data.preparation.documents import write_tokens
from xformer_kit.data.preparation.windows import Windows
from xformer_kit.data.tokenizer import Tokenizer
from xformer_kit.registry import Fault, config_error

STDIN = "/dev/stdin"  # the file of --input -


FORMS: dict[str, Any] = {"jsonl": JSONLines, "csv": CSV, "parquet": Parquet}
# Config path of a fault -> what sets it here.
OPTIONS = {
    **dict.fromkeys(("data", "data.name", "data.path", "data.valid_path", "tokenizer"), "--input"),
    "data.text": "--field",
    "data.cache": "TMPDIR",
}
TEXT = "text"  # the form of files without fields


def form_of(path: str, data: Config) -> str:
    """Returns the form in which the files of --input are read, a name of FORMS or TEXT: that of
    their ending, or else that of the run's data. data: the run's.
    """
    endings: dict[str, tuple[str, ...]] = {form: kind.suffixes for form, kind in FORMS.items()}
    endings |= {"jsonl": (*JSONLines.suffixes, ".json"), TEXT: files.SUFFIXES}
    if path == "-":
        return TEXT
    by_ending = (form for form, suffixes in endings.items() if path.endswith(suffixes))
    return next(by_ending, data["name"] if data["name"] in FORMS else TEXT)


@contextmanager
def given_windows(
    path: str, field: str, config: Config, tokenizer: Tokenizer
) -> Iterator[tuple[Windows, int]]:
    """A context with (the windows of a text, the number of its characters without a token). The
    windows are as those of validation: data.valid_len or data.seq_len tokens, the last one padded,
    so that every token after the first is predicted once.

    path: files as `files.find` finds them, of which `field` is the text if they have fields (see
    `form_of`); or - for stdin. With data.documents, each entry is a separate document. The ids are
    in a temporary directory. Raises ConfigError if the text cannot be read or encoded, or has less
    than two tokens.
    """
    data = config["data"]
    form = form_of(path, data)
    by_document = form != TEXT and bool(data.get("documents"))
    if form == TEXT:
        found = [Path(STDIN)] if path == "-" else files.find(path, "--input")
        texts = files.joined(found, "--input")
    else:
        texts = _field_texts(path, field, form, data)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "text", "text.bin")
        file.parent.mkdir()
        with changed_faults(_of_option):
            counts = write_tokens(file, tokenizer, texts, by_document)
        if counts["tokens"] <= counts.get("documents", 1):
            raise config_error(
                "--input",
                "must have at least 2 tokens, since the first is not predicted",
                got=counts["tokens"],
                fix="Give a longer text.",
            )
        seq_len = data.get("valid_len") or data["seq_len"]
        windows = Windows(
            file,
            tokenizer.dtype.str,
            tokens=counts["tokens"],
            bytes=counts["bytes"],
            seq_len=seq_len,
            pad=True,
            documents=counts.get("documents"),
        )
        yield windows, counts["dropped"]


def _field_texts(path: str, field: str, form: str, data: Config) -> Iterator[str]:
    """Yields the texts as the corpus `form` reads them: all, since they are those of a given
    split.
    """
    if form == "parquet":
        refuse(missing_package(Parquet, "pyarrow", "data"))
    options = {"delimiter": data["delimiter"]} if form == data["name"] == "csv" else {}
    return FORMS[form](path=path, valid_path=path, text=field, **options).texts("valid")


def _of_option(fault: Fault) -> Fault:
    """Returns a fault with the option of the command in place of its config path."""
    fix = "Set it to another directory." if fault.path == "data.cache" else fault.fix
    return replace(fault, path=OPTIONS.get(fault.path, fault.path), fix=fix)
