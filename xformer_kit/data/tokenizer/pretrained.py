"""Pretrained tokenizers: a tokenizer.json, from a file or from the Hugging Face hub."""

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path

from xformer_kit.data.tokenizer.base import TOKENIZERS, Tokenizer
from xformer_kit.data.tokenizer.library import LibraryTokenizer, parse_tokenizer
from xformer_kit.data.tokenizer.saved import KEYS, load_tokenizer
from xformer_kit.files.saved_files import readable
from xformer_kit.registry import ConfigError, Fault, config_error
from xformer_kit.registry.messages import one_line
from xformer_kit.text.user_path import user_path

FILE = "tokenizer.json"
# Model -> its name on the hub, and the tokenizer of this package of the same kind.
MODELS = {
    "gpt2": ("openai-community/gpt2", "bpe"),
    "roberta": ("FacebookAI/roberta-base", "bpe"),
    "t5": ("google-t5/t5-small", "unigram"),
    "bert": ("google-bert/bert-base-uncased", "wordpiece"),
}
WAIT = 5.0  # seconds to wait for the first response of the hub
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@TOKENIZERS.register(
    "pretrained", also_called=("hub", "huggingface", "hf", "auto"), similar=("tiktoken",)
)
class Pretrained(LibraryTokenizer):
    """A pretrained tokenizer of the library `tokenizers`, from a local file or of a model on the
    hub.

    Or that of a run, of any kind. Byte-level tokens decode to any bytes; others to the text of
    their decoder. Its special tokens stay in the vocabulary, but no text is encoded to one, and
    decoding omits them. The run keeps a copy of the file.
    """

    # not before a line end: a punctuation mark and the line end after it may be one token
    boundary = re.compile(r"(?<=\S) ")

    def __init__(
        self,
        *,
        # a tokenizer.json, a directory that holds one, as that of a run, or a name on the hub such
        # as 'openai-community/gpt2'
        path: str,
    ):
        text = read(path)
        self.file_hash = hashlib.sha256(text.encode()).hexdigest()
        self.adopt(parse_tokenizer(text, "tokenizer.path", path))

    @classmethod
    def check(cls, options, context):
        if fault := _path_fault(options.path):
            yield fault


TOKENIZERS.refused_names |= {
    model: Fault(
        "",
        f"'{model}' is a tokenizer that is trained already: tokenizer=pretrained"
        f" tokenizer.path={path}",
        fix=f"tokenizer={kind} learns one of that kind from your text.",
    )
    for model, (path, kind) in MODELS.items()
}


def saved_or_pretrained(path: str, name: str = FILE) -> Tokenizer:
    """Returns the tokenizer of a path: of one of the library `tokenizers`, or any that a run saved.

    name: of the file in a run's directory; if it has none of this name, it is that of `path`. A
    run has a file for its sources if they have tokens of their own.
    """
    file_path = user_path(path)
    if file_path.is_dir() or file_path.name == FILE:
        folder = file_path if file_path.is_dir() else file_path.parent
        path = str(folder / name) if (folder / name).is_file() else path
    if (file := _file(path)).is_file() and '"state"' in (text := _text(file)):
        with suppress(ValueError):
            if set(json.loads(text)) == set(KEYS):
                tokenizer = load_tokenizer(file)
                tokenizer.file_hash = hashlib.sha256(text.encode()).hexdigest()
                return tokenizer
    return Pretrained(path=path)


def check_file(path: str) -> None:
    """Raises ConfigError if the file that a path names is no tokenizer of the library. That of
    another kind, which has a state, is checked when it is loaded.
    """
    if '"state"' not in (text := read(path)):
        parse_tokenizer(text, "tokenizer.path", path)


def _path_fault(path: str) -> Fault | None:
    """Returns the fault of a path that cannot be a tokenizer, without network access."""
    file_path = user_path(path)
    if file_path.is_dir() and not (file_path / FILE).is_file():
        return Fault(
            "path",
            f"must hold a {FILE}",
            f"'{path}'",
            "Save it there, e.g. with AutoTokenizer.from_pretrained(...).save_pretrained(...).",
        )
    names_file = path.startswith((".", "/", "~")) or path.endswith((".json", os.sep))
    if (names_file or not HUB_NAME.fullmatch(path)) and not file_path.exists():
        return Fault(
            "path",
            f"must be a {FILE}, a directory that holds one, or a name on the hub",
            f"'{path}', which is not there",
        )
    return None


def read(path: str) -> str:
    """Returns the text of the file that a path names. Raises ConfigError if there is none or it
    cannot be downloaded.
    """
    if fault := _path_fault(path):
        raise ConfigError(fault.at("tokenizer"))
    file = _file(path)
    return _text(file if file.exists() else Path(_download(path)))


def _file(path: str) -> Path:
    file_path = user_path(path)
    return file_path / FILE if file_path.is_dir() else file_path


def _text(file: Path) -> str:
    try:
        return readable(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise config_error(
            "tokenizer.path",
            "must be a file in utf-8 that can be read",
            f"'{file}' ({error})",
            f"Give a {FILE}.",
        ) from None


def _download(name: str) -> str:
    """Returns the path of a model's tokenizer.json in the hub's cache, after a download if it is
    not there yet.
    """
    import huggingface_hub
    from huggingface_hub import errors

    try:
        with suppress(errors.LocalEntryNotFoundError):
            return huggingface_hub.hf_hub_download(name, FILE, local_files_only=True)
        # a download is repeated for half a minute without a response; this request is not
        huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url(name, FILE), timeout=WAIT)
        return huggingface_hub.hf_hub_download(name, FILE)
    except Exception as error:  # of the network or of the name, by several libraries
        raise config_error(
            "tokenizer.path",
            f"must be a {FILE} or a name on the hub",
            f"'{name}', which is no local file, and the hub did not give it ({one_line(error)})",
            f"Give the path of a {FILE}, or start once with a network.",
        ) from None
