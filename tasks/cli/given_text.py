"""The windows of a text that is not of a run's corpus, for `xformer evaluate RUN --input`."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tasks import Config
from xformer_kit.data import files
from xformer_kit.data.corpus.records import JSONLines
from xformer_kit.data.documents import write_documents, write_text
from xformer_kit.data.tokenizer import Tokenizer
from xformer_kit.data.windows import Windows
from xformer_kit.registry import ConfigError, Fault, config_error

STDIN = "/dev/stdin"  # the file of --input -


class GivenRecords(JSONLines):
    """The JSON lines of --input, whose field --field is the text of a document."""

    def option_path(self, option: str) -> str:
        return "--field" if option == "text" else "--input"

    def config_error(self, option: str, rule: str, got: str = "", fix: str = "") -> ConfigError:
        return config_error(self.option_path(option), rule, got, fix)


def is_json_lines(path: str) -> bool:
    """Whether a path names files of JSON lines."""
    return path.endswith(JSONLines.suffixes)


@contextmanager
def given_windows(
    path: str, field: str, config: Config, tokenizer: Tokenizer
) -> Iterator[tuple[Windows, int]]:
    """A context with (the windows of a text, the number of its characters without a token). The
    windows are as those of validation: data.valid_len or data.seq_len tokens, the last one padded,
    so that every token after the first is predicted once.

    path: text files as `files.find` finds them; files of JSON lines, whose field `field` is the
    text; or - for stdin. With data.documents, each line of JSON is a separate document. The ids are
    in a temporary directory. Raises ConfigError if the text cannot be read or encoded, or has less
    than two tokens.
    """
    data, records = config["data"], is_json_lines(path)
    by_document = records and bool(data.get("documents"))
    texts = _record_texts(path, field) if records else _plain_texts(path)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "text", "text.bin")
        file.parent.mkdir()
        with _faults_of_options():
            counts = (write_documents if by_document else write_text)(file, tokenizer, texts)
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


def _plain_texts(path: str) -> Iterator[str]:
    found = [Path(STDIN)] if path == "-" else files.find(path, "--input")
    return files.joined(found, "--input")


def _record_texts(path: str, field: str) -> Iterator[str]:
    """Yields the texts as data=jsonl reads them: all, since they are those of a given split."""
    return GivenRecords(path=path, valid_path=path, text=field).texts("valid")


@contextmanager
def _faults_of_options() -> Iterator[None]:
    """A context that names the option in place of the config path of a fault."""

    def renamed(fault: Fault) -> Fault:
        if fault.path == "data.cache":
            return replace(fault, path="TMPDIR", fix="Set it to another directory.")
        return replace(fault, path="--input") if fault.path == "tokenizer" else fault

    try:
        yield
    except ConfigError as error:
        raise ConfigError(map(renamed, error.faults)) from None
