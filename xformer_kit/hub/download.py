"""Published models on the Hugging Face hub: a name becomes a directory."""

import re
from contextlib import suppress
from pathlib import Path

from xformer_kit.hub.files import CONFIG
from xformer_kit.registry import config_error
from xformer_kit.registry.messages import one_line
from xformer_kit.text.user_path import user_path

NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
WAIT = 3.0  # seconds to wait for the first response
FILES = ("*.json", "*.safetensors", "tokenizer.model")


def is_hub_name(word: str) -> bool:
    """Whether a word is like a name on the hub, organisation/model, and not in a directory here."""
    return NAME.fullmatch(word) is not None and not Path(word).parent.is_dir()


def published_directory(name: str | Path) -> Path | None:
    """Returns the directory of a published model, given as that, as its config.json, or as a name
    on the hub, whose files are then downloaded; None for anything else. Raises ConfigError.
    """
    path = user_path(name)
    if path.name == CONFIG and path.is_file():
        path = path.parent
    if not path.exists() and is_hub_name(str(name)):
        return downloaded(str(name))
    is_run = (path / "config.yaml").is_file()
    return path if (path / CONFIG).is_file() and not is_run else None


def downloaded(name: str) -> Path:
    """Returns the directory of a model's files in the hub's cache, after a download of those that
    are not there yet. Raises ConfigError.
    """
    import huggingface_hub
    from huggingface_hub import errors

    download = huggingface_hub.snapshot_download
    try:
        with suppress(errors.LocalEntryNotFoundError):
            return Path(download(name, allow_patterns=list(FILES), local_files_only=True))
        # a download is repeated for half a minute without a response; this request is not
        url = huggingface_hub.hf_hub_url(name, "config.json")
        huggingface_hub.get_hf_file_metadata(url, timeout=WAIT)
        return Path(download(name, allow_patterns=list(FILES)))
    except Exception as error:  # of the network or of the name, by several libraries
        raise config_error(
            name,
            "is no directory here, and the hub did not give a model of this name",
            one_line(error, 120),
            "Give the path of a directory, or start once with a network.",
        ) from None
