"""Unknown options, and the options that other libraries call by another name."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from xformer_kit.registry.fault import Fault, format_value
from xformer_kit.registry.messages import SYNONYMS, alternatives, did_you_mean, nearest
from xformer_kit.registry.other_libraries import (
    CORPUS_OF_SUFFIX,
    OTHER_OPTIONS,
    RECOMPUTED,
    WITHOUT_OPTION,
)
from xformer_kit.text.command_lines import for_shell, override_text

Choices = Mapping[str, list[str]]  # group -> its names
COLUMNS = {"data.text", "data.label", "data.source", "data.target"}  # of a file with columns
CHOICES_WITH = {"mask.window": "mask=sliding_window"}  # option -> the choice that has it
# Names of the file of a ready tokenizer, below another tokenizer.
PRETRAINED = {f"tokenizer.{key}" for key in ("path", "pretrained", "file", "name_or_path")}
# What other libraries begin the names of metrics of the validation with: val_loss, eval_loss.
SPLIT = re.compile(r"^(val|valid|validation|eval|dev|test)_")


def unknown_option(
    path: str,
    kind: str,
    name: str,
    key: str,
    options: Iterable[str],
    elsewhere: Mapping[str, list[str]] | None = None,
    value: Any = None,
    choices: Choices | None = None,
) -> Fault:
    """Returns the fault of an unknown option.

    elsewhere: option of another component or node -> its config paths. value: the option's value.
    choices: see `other_option`.
    """
    options, elsewhere = list(dict.fromkeys(options)), elsewhere or {}
    of_node = f"{path}.{key}"
    if path and (of_node in OTHER_OPTIONS or of_node in WITHOUT_OPTION):
        word = OTHER_OPTIONS.get(of_node, "").rpartition(".")[2]
        return cast(Fault, other_option(of_node, value, places=elsewhere.get(word, [])))
    if of_node in COLUMNS and "columns" in options:
        fix = "Try 'data.columns=[text,label]', with the names in the file's first line."
        return Fault(of_node, "is one of data.columns here", value, fix)
    if kind != "settings" and key in ("type", "kind"):
        return Fault(of_node, f"is called {path} here", value, f"Try {path}={value}.")
    if isinstance(value, str) and value and (fix := _reader_of(of_node, value)):
        return Fault(of_node, f"{kind} '{name}' reads no file", value, fix)
    usual = OTHER_OPTIONS.get(key, "").partition("=")[0]
    word = usual.rpartition(".")[2]
    if path and word in options and (fault := other_option(key, value, f"{path}.{word}")):
        return replace(fault, path=of_node)
    places = elsewhere.get(word, []) if path or word not in options else []
    is_elsewhere = key not in elsewhere and (word not in options or not path)
    is_unchosen = any("=" in place for place in places)  # an option of other components
    if (
        is_elsewhere
        and not is_unchosen
        and (
            fault := other_option(
                key, value, usual if usual in places else next(iter(places), ""), choices, places
            )
        )
    ):
        return replace(fault, path=f"{path}.{key}".strip("."))
    settings = kind == "settings"
    rule = "the config has no such key" if settings else f"{kind} '{name}' has no option '{key}'"
    fix = _similar(key, word, options, elsewhere, value, bool(path), settings)
    return Fault(f"{path}.{key}".strip("."), rule, fix=fix)


def _similar(
    key: str,
    word: str,
    options: list[str],
    elsewhere: Mapping[str, list[str]],
    value: Any,
    in_node: bool,
    settings: bool,
) -> str:
    """Returns the fix for an unknown option: an option of that name elsewhere, or a similar one.
    word: our name of the option, if another library has it.
    """
    has = f"It has: {', '.join(options)}." if options else "It has no options."
    if key in elsewhere:
        known = _with_value(elsewhere[key], value)
        return f"{has if in_node else ''} Try {alternatives(known)}.".strip()
    if hint := did_you_mean(key, options):
        return f"{hint}{has}"
    if close := nearest(word if word in elsewhere else key, elsewhere):
        there = alternatives(elsewhere[close])
        found = there if settings else f"'{close}' of {there}"
        return f"Did you mean {found}? {has}"
    return f"{has} Leave it out."


def _reader_of(path: str, file: str) -> str:
    """Returns the fix for a file that is given to a corpus or a tokenizer that reads none; "" for
    any other option.
    """
    if path == "data.path":
        typed = for_shell(f"data.path={override_text(file)}")
        return f"Try data={corpus_of(file)} {typed}."
    if path in PRETRAINED:
        return f"Try tokenizer=pretrained {for_shell(f'tokenizer.path={override_text(file)}')}."
    return ""


def other_option(
    key: str,
    value: Any = None,
    ours: str = "",
    choices: Choices | None = None,
    places: Iterable[str] = (),
) -> Fault | None:
    """Returns the fault of an option of another library, with our option and the value; None for a
    key that is none.

    ours: the config path of our option; "" is that of OTHER_OPTIONS. choices: names of groups, of
    which the fix has the most similar one. places: paths of such an option in this config.
    """
    is_mapping = isinstance(value, Mapping)  # of optimizer.lr=1e-3, for example
    if key in WITHOUT_OPTION and (not is_mapping or "." in key):
        rule, fix = WITHOUT_OPTION[key]
        if value is False and (rule, fix) == RECOMPUTED:
            fix = "Leave it out."
        return Fault(key, rule, format_value(value), fix)
    if not (other := OTHER_OPTIONS.get(key)):
        return None
    usual, _, needed = other.partition("=")
    ours = ours or usual
    is_count = needed.isdigit() and type(value) is int  # early_stopping=3
    text = str(value) if is_count else needed or value_text(ours, value)
    got = "" if value is None else format_value(value)
    if value is None and ours == "logger":  # wandb=null
        value = False
    if value is False and needed:  # fp16=false, early_stopping=false, wandb=false
        fix = "Try logger=csv." if ours == "logger" else "It is off unless set: leave it out."
        return Fault(key, f"is called {ours} here", got, fix)
    if is_mapping:
        return Fault(key, f"is called {ours} here", got, _inside(ours, needed, value, choices))
    if ours == "resume" and (path := re.fullmatch(r"(.+)/checkpoints/[^/]+\.ckpt", str(value))):
        typed = for_shell(f"resume={override_text(path[1])}")
        return Fault(key, "is called resume here", got, f"Try {typed}.")
    if ours == "resume" and (value in (True, "best", "last") or str(value).endswith(".ckpt")):
        return Fault(key, "is called resume here", got, "Try resume=RUN, the directory of a run.")
    if ours == "trainer.devices" and text == "0":  # trainer.gpus=0
        ours, text = "trainer.accelerator", "cpu"
    text = _choice(ours, text, choices)
    chosen = f"{CHOICES_WITH[ours]} " if ours in CHOICES_WITH and ours not in places else ""
    fix = f"Try {chosen}{ours}={text}." if text else "Leave it out." if value is None else ""
    return Fault(key, f"is called {ours} here", got, fix)


def _choice(group: str, text: str, choices: Choices | None) -> str:
    """Returns a choice of another library, such as torch.optim.AdamW, as the most similar of the
    group's names; all of them if none is similar.
    """
    names = (choices or {}).get(group, [])
    if not names or not text or text in names:
        return text
    return nearest(text.rpartition(".")[2], names) or alternatives(names)


def _inside(
    ours: str, needed: str, options: Mapping[str, Any], choices: Choices | None = None
) -> str:
    """Returns the fix for options of a node of another library, such as optimizer.lr=1e-3 or
    early_stopping.patience=3.
    """
    if ours == "logger":  # wandb.project=mine
        return "Try logger=wandb, with logger.project, logger.entity, logger.tags, logger.run_name."
    node = ours.rpartition(".")[0] or ours
    words = [f"{ours}={needed}"] * bool(needed and node == ours)
    for key, value in options.items():
        is_name = key in ("name", "type") or (key == "_target_" and node in (choices or {}))
        if is_name and node == ours:
            words.insert(0, f"{node}={_choice(node, str(value), choices)}")
        elif key != "_target_":
            known = OTHER_OPTIONS.get(f"{node}.{key}") or OTHER_OPTIONS.get(key, "")
            path, _, text = known.partition("=")
            if not path.startswith(f"{node}."):
                path, text = f"{node}.{key}", ""
            words.append(f"{path}={text or value_text(path, value) or override_text(value)}")
    return f"Try {' '.join(words)}." if words else "Leave it out."


def value_text(ours: str, value: Any) -> str:
    """Returns the value of an option of another library as one of ours; "" for one that does not
    carry over.
    """
    if value is None or not (
        isinstance(value, (bool, int, float)) or re.fullmatch(r"[\w./:-]+", str(value))
    ):
        return ""
    text = str(format_value(value)).strip("'")
    if ours == "trainer.precision":
        return SYNONYMS.get(text.rpartition(".")[2], text)  # torch.bfloat16
    if not ours.endswith(".metric"):
        return text
    return text if "/" in text else our_metric(text)


def our_metric(name: str) -> str:
    """Returns the name here of a metric that another library calls loss, val_loss or eval_loss."""
    last = name.rpartition("/")[2]
    return "train/loss" if last == "train_loss" else f"val/{SPLIT.sub('', last) or 'loss'}"


def _with_value(places: list[str], value: Any) -> list[str]:
    """Returns config paths of options with the value; choices such as data=text as they are."""
    if any("=" in place for place in places):
        return places
    if isinstance(value, str) and all(place.endswith(".tags") for place in places):
        value = [value]
    if isinstance(value, list):
        return [f"{place}={for_shell(override_text(value))}" for place in places]
    return [f"{place}={text}" if (text := value_text(place, value)) else place for place in places]


def corpus_of(file: str) -> str:
    """Returns the corpus that reads a file with this name."""
    found = (CORPUS_OF_SUFFIX.get(suffix) for suffix in file.lower().split(".")[1:])
    return next(filter(None, found), "text")
