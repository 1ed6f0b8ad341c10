"""What other libraries call the options and choices of a run: the answers to them, which are in
other_libraries.json.

options: option of another library -> config path of ours, or an override if the value is another
one too; a key with a dot is an option of that node only. choices: choice of another library -> what
sets the same here. synonyms: choice of another library -> ours, where their spelling differs.
trainer: other keyword of Lightning's Trainer -> (what decides it here, the fix if it is not that of
options). without_option: options without one of ours. norms_of_batches: norms that no
transformer here has. corpus_of_suffix: ending of a file -> the choice of data that reads it.
arguments: {forward, generate} -> argument of another library -> our name, or (rule, fix).
"""

import json
import re
from pathlib import Path

_names = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
OTHER_OPTIONS: dict[str, str] = _names["options"]
SYNONYMS: dict[str, str] = _names["synonyms"]
REPLACED: dict[str, tuple[str, str]] = _names["trainer"]
OTHER_CHOICES: dict[str, str] = _names["choices"]
NORMS_OF_BATCHES: list[str] = _names["norms_of_batches"]
CORPUS_OF_SUFFIX: dict[str, str] = _names["corpus_of_suffix"]
OTHER_ARGUMENTS: dict[str, dict[str, str | list[str]]] = _names["arguments"]
WITHOUT_OPTION: dict[str, tuple[str, str]] = {
    name: (entry["rule"], entry["fix"])
    for entry in _names["without_option"]
    for name in entry["names"]
}
# Names of published models start with one of these; the page has the lines of their architectures.
PUBLISHED = re.compile(
    r"(llama|gpt|pythia|mi[sx]tral|qwen|gemma|phi|olmo|opt|falcon|deepseek|bert|roberta)", re.I
)
PUBLISHED_PAGE = "docs/guide/published_models.md"
