"""A tokenizer as files that the library transformers loads, with the special tokens of its task."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xformer_kit.data import cache
from xformer_kit.data.tokenizer.library import LibraryTokenizer
from xformer_kit.objective.denoising import MASK
from xformer_kit.objective.seq2seq import END, START

FILE, SETTINGS = "tokenizer.json", "tokenizer_config.json"


def write_tokenizer(
    folder: Path, tokenizer: LibraryTokenizer, keys: Mapping[str, Any], two_stacks: bool
) -> dict[str, Any]:
    """Writes tokenizer.json and tokenizer_config.json. Returns the ids of the special tokens of an
    answer for config.json, if the task has them.

    keys: config.json. two_stacks: whether the model has a source, whose texts then end with END.
    """
    from tokenizers import processors

    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if (longest := keys.get("max_position_embeddings")) is not None:
        settings["model_max_length"] = longest
    library, names = _with_specials(tokenizer)
    ids: dict[str, Any] = {}
    if START in tokenizer.specials:
        start = tokenizer.special(START)
        ids = {"bos_token_id": start, "eos_token_id": tokenizer.special(END)}
        if two_stacks:
            ids["decoder_start_token_id"] = start
    if MASK in names:
        settings["mask_token"] = names[MASK]
    if END in names:
        end_name = names[END]
        settings |= {"eos_token": end_name, "pad_token": end_name}
        if two_stacks:
            ends = [(end_name, tokenizer.special(END))]
            library.post_processor = processors.TemplateProcessing(f"$A {end_name}", None, ends)
    cache.write(folder / FILE, library.to_str(pretty=True) + "\n")
    cache.write(folder / SETTINGS, json.dumps(settings, indent=2) + "\n")
    return ids


def _with_specials(tokenizer: LibraryTokenizer) -> tuple[Any, dict[str, str]]:
    """Returns the tokenizer of the library with the special tokens of the task, and their names
    there. Without them if it numbers them otherwise, as it does if its ids have gaps.
    """
    from tokenizers import AddedToken, Tokenizer

    library = Tokenizer.from_str(tokenizer.library.to_str())
    known, names = library.get_vocab(), {}
    for special in tokenizer.specials:
        names[special] = special
        while names[special] in known:
            names[special] = f"<{names[special]}>"
    library.add_special_tokens([AddedToken(name, special=True) for name in names.values()])
    if all(library.token_to_id(name) == tokenizer.special(s) for s, name in names.items()):
        return library, names
    return Tokenizer.from_str(tokenizer.library.to_str()), {}
