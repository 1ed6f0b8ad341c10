"""Checks of a config's data: the corpus, its tokenizer, and how examples become batches."""

from collections.abc import Mapping
from typing import Any

from xformer_kit.config.settings import SETTINGS
from xformer_kit.data.corpus import CORPORA
from xformer_kit.data.labelled import too_short_fault
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import as_node, max_len
from xformer_kit.registry import Context, Fault, Faults, Node, Registry


def faults_with_settings(name: str, registry: Registry, node: Any, context: Context) -> Faults:
    """Faults of the node of a tokenizer or a corpus, which has settings next to the component's
    options.
    """
    if not isinstance(node, Mapping):
        yield from registry.faults(node, name, context)
        return
    common = SETTINGS.options(name)
    settings = {key: value for key, value in node.items() if key in common}
    yield from SETTINGS.faults({"name": name} | settings, name, context)
    own = {key: value for key, value in node.items() if key not in common}
    yield from registry.faults(own, name, context, other_keys=common)


def form_of(data: Node) -> str:
    """The form of the examples of a config's `data`: text, pairs, labelled."""
    return CORPORA[data["name"]].form_of(CORPORA.complete(data))


def labelling(data: Node) -> Any:
    """The corpus of a config's `data` if it labels its examples itself; None if it does not, or has
    faults.
    """
    if (
        data.get("name") not in CORPORA
        or form_of(data) != "labelled"
        or any(faults_with_settings("data", CORPORA, data, Context()))
    ):
        return None
    options = CORPORA.options(data["name"])
    return CORPORA.create({key: data[key] for key in data if key == "name" or key in options})


def unread(task: str, reads: tuple[str, ...], data: Node) -> Faults:
    """The message for a corpus with examples that the task cannot learn from."""
    form, name = form_of(data), data["name"]
    if form in reads:
        return
    yield Fault(
        "task",
        f"'{task}' learns from {' or '.join(reads)}, and data={name} gives {form}",
        fix=f"Known for it: {', '.join(read_by(reads)) or 'none'}.",
    )


def read_by(forms: tuple[str, ...]) -> list[str]:
    """Choices of corpora with examples of these forms."""
    return [
        f"data={name}{corpus.forms()[form]}"
        for name, corpus in sorted(CORPORA.items())
        for form in forms
        if form in corpus.forms()
    ]


def at_hand(forms: tuple[str, ...]) -> str:
    """The first corpus with examples of these forms that needs no file, package or option."""
    choices = (choice.removeprefix("data=") for choice in read_by(forms))
    return next(name for name in choices if not any(CORPORA.faults(name, "data", Context())))


def not_read(config: Node) -> Faults:
    """Keys that the run of a valid config does not read."""
    data = config["data"]
    if form_of(data) == "labelled":
        own, out = f"is not read; data={data['name']} is a probe, whose", "Leave it out."
        yield Fault("tokenizer", f"{own} words are its vocabulary", fix=out)
        made = "examples are made when they are needed and never kept"
        yield Fault("data.cache", f"{own} {made}", fix=out)
    if data.get("batch_tokens") is not None:
        yield Fault(
            "data.batch_size",
            "is not read with data.batch_tokens",
            got=f"{data['batch_size']} and {data['batch_tokens']}",
            fix="Leave it out, or set data.batch_tokens=null.",
        )


def unused(config: Node) -> Faults:
    """Messages for settings of pairs if there are none, and for two tokenizers if the model embeds
    one vocabulary.
    """
    data, model = config["data"], config["model"]
    shared = as_node(config["tokenizer"]).get("shared", True)
    form = form_of(data)
    if data.get("documents"):
        yield from _apart(as_node(config["task"])["name"], data)
    if data.get("valid_len") is not None:
        yield from _longer(form, config)
    if form == "pairs":
        yield from _of_pairs(data, model, shared)
    else:
        yield from _of_others(form, data, shared)


def _of_others(form: str, data: Node, shared: bool) -> Faults:
    """Settings of pairs for a corpus that gives none, and examples that no window holds."""
    for key in ("batch_tokens", "too_long"):
        if data.get(key) is not None:
            yield Fault(
                f"data.{key}",
                f"is about pairs, and data={data['name']} gives {form}",
                fix="Leave it null.",
            )
    if not shared:
        yield Fault(
            "tokenizer.shared",
            f"false is for source and target, and data={data['name']} gives {form}",
            fix="Leave it true.",
        )
    if (probe := labelling(data)) is not None and (
        fault := too_short_fault(probe, data["seq_len"])
    ):
        yield fault


def _of_pairs(data: Node, model: Node, shared: bool) -> Faults:
    """Batches that hold no example, and two tokenizers for one vocabulary."""
    if data.get("batch_tokens") is not None and data["batch_tokens"] < data["seq_len"]:
        yield Fault(
            "data.batch_tokens",
            "must hold one example of data.seq_len",
            got=f"{data['batch_tokens']} and {data['seq_len']}",
            fix=f"Try {8 * data['seq_len']}, which holds 8 of the longest.",
        )
    if not shared and not ("encoder" in model and "decoder" in model):
        yield Fault(
            "tokenizer.shared",
            "false gives source and target a vocabulary each, and the model has one stack",
            fix="Leave it true.",
        )
    elif not shared and model.get("share_embeddings", True):
        yield Fault(
            "tokenizer.shared",
            "false gives source and target a vocabulary each, which one matrix cannot embed",
            fix="Set model.share_embeddings=false, or tokenizer.shared=true.",
        )


def _longer(form: str, config: Node) -> Faults:
    """Messages for a length of validation that the corpus or the model does not have."""
    given, longest = config["data"]["valid_len"], max_len(config)
    if form != "text":
        yield Fault(
            "data.valid_len",
            f"is about a text, and data={config['data']['name']} gives {form}",
            fix="Leave it null.",
        )
    elif given > longest >= config["data"]["seq_len"]:  # else model.max_len is at fault
        yield Fault(
            "data.valid_len",
            "must be at most model.max_len",
            got=f"{given} and {longest}",
            fix=f"Set model.max_len={given}, or leave it null.",
        )


def _apart(task: str, data: Node) -> Faults:
    """Messages for documents that the corpus does not have, or that the task does not separate."""
    if not CORPORA[data["name"]].documents_of(CORPORA.complete(data)):
        kind, registry = "data", CORPORA
        rule = f"needs a text of documents, and data={data['name']} gives none"
    elif not OBJECTIVES[task].documents:
        kind, registry = "task", OBJECTIVES
        rule = f"task={task} does not keep documents apart"
    else:
        return
    able = ", ".join(f"{kind}={name}" for name in sorted(registry) if registry[name].documents)
    yield Fault("data.documents", rule, fix=f"Set it to false, or use {able}.")
