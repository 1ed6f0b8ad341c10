"""Checks of a config's data: the corpus, its tokenizer, and how examples become batches."""

from collections.abc import Mapping
from typing import Any

from xformer_kit.config.options.settings import SETTINGS
from xformer_kit.data.corpus import CORPORA
from xformer_kit.data.preparation.labelled import too_short_fault
from xformer_kit.objective import OBJECTIVES
from xformer_kit.plan import STACKS, as_node, max_len
from xformer_kit.registry import Context, Fault, Faults, Node, Registry, alternatives


def faults_with_settings(
    name: str, registry: Registry, node: Any, context: Context, component: bool = True
) -> Faults:
    """Yields the faults of the node of a tokenizer or a corpus, which holds settings and the
    component's options; component: whether the latter are checked.
    """
    if not isinstance(node, Mapping):
        yield from registry.faults(node, name, context)
        return
    common = SETTINGS.options(name)
    settings = {key: value for key, value in node.items() if key in common}
    yield from SETTINGS.faults({"name": name} | settings, name, context)
    if component:
        own = {key: value for key, value in node.items() if key not in common}
        yield from registry.faults(own, name, context, other_keys=common)


def form_of(data: Node) -> str:
    """Returns the form of the examples of a config's `data`: text, pairs or labelled."""
    return CORPORA[data["name"]].form_of(CORPORA.complete(data))


def labelled_corpus(data: Node) -> Any:
    """Returns the corpus of a config's `data` if it generates labelled examples (a probe); None for
    other forms and for a node with faults.
    """
    name = data.get("name")
    if (
        name not in CORPORA
        or form_of(data) != "labelled"
        or any(faults_with_settings("data", CORPORA, data, Context()))
    ):
        return None
    return created_corpus(data)


def created_corpus(data: Node) -> Any:
    """Returns the corpus of a valid node `data`, which has other settings, too."""
    own = {"name", *CORPORA.options(data["name"])}
    return CORPORA.create({key: value for key, value in data.items() if key in own})


def form_faults(task: str, forms: tuple[str, ...], data: Node) -> Faults:
    """Yields the fault of a corpus whose examples have none of the forms that the task trains
    on.
    """
    if form_of(data) not in forms:
        # the same corpus with other options
        others = CORPORA[data["name"]].forms()
        own = [others[form].strip() for form in forms if others.get(form)]
        yield _form_fault(
            "task",
            f"'{task}' learns from {' or '.join(forms)}",
            data,
            f"{f'Set {alternatives(own)}. ' if own else ''}Known for it:"
            f" {', '.join(corpora_with(forms)) or 'none'}.",
        )


def _form_fault(path: str, rule: str, data: Node, fix: str) -> Fault:
    """Returns the fault of a value that the form of the corpus's examples excludes."""
    return Fault(path, f"{rule}, and data={data['name']} gives {form_of(data)}", fix=fix)


def corpora_with(forms: tuple[str, ...]) -> list[str]:
    """Returns the overrides that choose a corpus with examples of these forms."""
    return [
        f"data={name}{corpus.forms()[form]}"
        for name, corpus in sorted(CORPORA.items())
        for form in forms
        if form in corpus.forms()
    ]


def unread_key_faults(config: Node) -> Faults:
    """Yields the faults of keys that the run of a valid config does not read."""
    data = config["data"]
    if form_of(data) == "labelled":
        unread = f"is not read; data={data['name']} is a probe, whose"
        for path, reason in (
            ("tokenizer", "words are its vocabulary"),
            ("data.cache", "examples are made when they are needed and never kept"),
        ):
            yield Fault(path, f"{unread} {reason}", fix="Leave it out.")
    if data.get("batch_tokens") is not None:
        yield Fault(
            "data.batch_size",
            "is not read with data.batch_tokens",
            got=f"{data['batch_size']} and {data['batch_tokens']}",
            fix="Leave it out, or set data.batch_tokens=null.",
        )


def data_faults(config: Node) -> Faults:
    """Yields the faults of settings that do not fit the form of the corpus's examples, the stacks
    of the model or the task.
    """
    data, model = config["data"], config["model"]
    shared = as_node(config["tokenizer"]).get("shared", True)
    if data.get("documents"):
        yield from _document_faults(as_node(config["task"])["name"], data)
    if data.get("valid_len") is not None:
        yield from _valid_len_faults(config)
    if form_of(data) == "pairs":
        yield from _pair_faults(data, model, shared)
    else:
        yield from _single_text_faults(data, shared)


def _single_text_faults(data: Node, shared: bool) -> Faults:
    """Yields the faults of settings of pairs with a corpus that has none, and of a probe whose
    examples are longer than data.seq_len.
    """
    for key in ("batch_tokens", "too_long"):
        if data.get(key) is not None:
            yield _form_fault(f"data.{key}", "is about pairs", data, "Leave it null.")
    if not shared:
        rule = "false is for source and target"
        yield _form_fault("tokenizer.shared", rule, data, "Leave it true.")
    if (probe := labelled_corpus(data)) is not None and (
        fault := too_short_fault(probe, data["seq_len"])
    ):
        yield fault


def _pair_faults(data: Node, model: Node, shared: bool) -> Faults:
    """Yields the faults of batches too small for one example, and of two tokenizers with one
    vocabulary.
    """
    tokens, seq_len = data.get("batch_tokens"), data["seq_len"]
    if tokens is not None and tokens < seq_len:
        yield Fault(
            "data.batch_tokens",
            "must hold one example of data.seq_len",
            got=f"{tokens} and {seq_len}",
            fix=f"Try {8 * seq_len}, which holds 8 of the longest.",
        )
    rule = "false gives source and target a vocabulary each"
    if not shared and not all(stack in model for stack in STACKS):
        rule += ", and the model has one stack"
        yield Fault("tokenizer.shared", rule, fix="Leave it true.")
    elif not shared and model.get("share_embeddings", True):
        rule += ", which one matrix cannot embed"
        fix = "Set model.share_embeddings=false, or tokenizer.shared=true."
        yield Fault("tokenizer.shared", rule, fix=fix)


def _valid_len_faults(config: Node) -> Faults:
    """Yields the fault of a validation length that the corpus or the model does not support."""
    data = config["data"]
    valid_len, longest = data["valid_len"], max_len(config)
    if form_of(data) != "text":
        yield _form_fault("data.valid_len", "is about a text", data, "Leave it null.")
    elif valid_len > longest >= data["seq_len"]:  # else model.max_len is at fault
        yield Fault(
            "data.valid_len",
            "must be at most model.max_len",
            got=f"{valid_len} and {longest}",
            fix=f"Set model.max_len={valid_len}, or leave it null.",
        )


def _document_faults(task: str, data: Node) -> Faults:
    """Yields the fault of data.documents if the corpus has no documents, or the task does not
    separate them.
    """
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
