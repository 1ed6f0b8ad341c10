"""A composition as one file of plain PyTorch."""

import textwrap
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import torch

from xformer_kit.eject.activations import expression, name_of
from xformer_kit.eject.extras import KNOWN
from xformer_kit.eject.norms import norm_call
from xformer_kit.eject.stacks import FIELD, StackWriter
from xformer_kit.eject.writer import Writer, refused, render
from xformer_kit.model.build import build_model
from xformer_kit.model.head import UNSCALED, LogitScaling, Transform
from xformer_kit.model.model import Model
from xformer_kit.plan import ModelPlan, model_plan


def eject(
    config: Mapping[str, Any],
    vocab_size: int,
    source_vocab_size: int | None = None,
    title: str = "A transformer",
    command: str = "xformer eject",
) -> str:
    """Returns the source of a file with the model of a valid config, which imports only torch.

    Names of parameters are those of ours, and so are logits and gradients, bit for bit, with the
    kernel that its docstring names. title, command: for its docstring. Raises ConfigError for a
    component or an option that has no template.
    """
    plan = model_plan(config)
    with torch.device("meta"):
        model = build_model(config, vocab_size, source_vocab_size)
    for name in plan.extras:
        if name not in KNOWN:
            raise refused(f"extra.{name}", name)
    if (config.get("lora") or {}).get("rank"):
        raise refused("lora.rank", config["lora"]["rank"])
    first = _write(None, plan, model)
    w = _write(first, plan, model)
    body = "\n\n".join(w.texts.values())
    return render(
        "file",
        docstring=_docstring(title, command, kernel_of(plan), len(plan.stacks) > 1),
        imports=[line for word, line in IMPORTS.items() if word in body],
        fields=w.fields(),
        parts=body.strip("\n"),
        rope="Rope" in body,
    )


def merged(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the config of a model whose adapters are merged into its weights."""
    return {**config, "lora": {**config["lora"], "rank": None}} if config.get("lora") else config


def _docstring(title: str, command: str, kernel: str, two_stacks: bool) -> str:
    """The docstring of the file, wrapped."""
    call = "model(source, ids)" if two_stacks else "model(ids)"
    source = " s tokens of the source," if two_stacks else ""
    paragraphs = [
        f"{title}, as plain PyTorch.",
        f"Written by `{command}` of xformer_kit {version('xformer_kit')}. With kernel={kernel}, its"
        " logits and gradients equal those of xformer_kit bit for bit. Initial weights are random,"
        " not those of xformer_kit:",
        f'    model = load("model.safetensors")\n    logits = {call}',
        f"Shapes: b batch, t tokens,{source} h heads, d channels of a head.",
    ]
    wrapped = (p if p.startswith(" ") else textwrap.fill(p, 99) for p in paragraphs)
    return "\n\n".join(wrapped)


IMPORTS = {"json.loads": "import json", "math.": "import math"}


def kernel_of(plan: ModelPlan) -> str:
    """Returns the kernel of an ejected file: sdpa if all attentions have it, else reference."""
    kernels = {
        sub.kernel_name
        for stack in plan.stacks
        for _, block in stack.own_blocks
        for sub in block.sublayers
        if sub.kind == "attn"
    }
    return "sdpa" if kernels <= {"sdpa", "flex", "varlen"} else "reference"


def _write(known: Writer | None, plan: ModelPlan, model: Model) -> Writer:
    w = Writer(known, len(plan.stacks) > 1, plan.options)
    w.extras = plan.extras
    w.value("vocab_size", model.vocab_size)
    w.value("dim", plan.output.dim)
    stacks = []
    for stack in plan.stacks:
        if stack.train_loops != (stack.loops, stack.loops):
            raise refused("model.train_loops", list(stack.train_loops))
        writer = StackWriter(w, stack, getattr(model, stack.name), kernel_of(plan))
        stacks.append((stack.name, writer.write()))
    _model(w, plan, model, stacks)
    return w


def _model(w: Writer, plan: ModelPlan, model: Model, stacks: list[tuple[str, str]]) -> None:
    """Writes the class of the model."""
    output, options = plan.output, plan.options
    embed_dim = w.value("dim" if output.embed_dim == output.dim else "embed_dim", output.embed_dim)
    scale = model.embed_scale
    factor = ""
    if options["embed_scale"] == "sqrt_dim":
        factor = f" * math.sqrt({embed_dim})"
    elif scale != 1.0:
        factor = f" * {w.value('embed_scale', scale)}"
    table = "self.embed" if model.source_embed is None else "self.source_embed"
    modules, lines = _head(w, plan, model)
    rows = model.embed.weight.shape[0]
    source = None
    if model.source_embed is not None:
        source = w.value("source_vocab_size", model.source_embed.weight.shape[0])
    text = {
        "words": "A transformer: embeddings, layers, and logits.",
        "rows": w.value("vocab_size" if rows == model.vocab_size else "vocab_rows", rows),
        "embed_dim": embed_dim,
        "source_embed": source,
        "token_types": options["token_types"],
        "stacks": tuple(stacks),
        "head_modules": tuple(modules),
        "head_lines": tuple(lines),
        "fields": any("self.c." in line for line in [*lines, factor]),
        "two": len(stacks) > 1,
        "encoder": model.names == ("encoder",),
        "prefix": model.stack.sees_prefix,
        "embedded": f"self.embed(ids){factor}",
        "source_embedded": f"{table}(source){factor}",
    }
    text["fields"] = any(FIELD.search(line) for line in [*lines, factor])
    for key in ("embedded", "source_embedded"):
        text[key] = FIELD.sub("self.c.", text[key])
    text["head_lines"] = tuple(FIELD.sub("self.c.", line) for line in lines)
    w.part("model", "Transformer", **text)


def _head(w: Writer, plan: ModelPlan, model: Model) -> tuple[list[str], list[str]]:
    """The lines of the head: its modules, and how x becomes logits."""
    head, options = model.head, plan.options
    vocab, rows = model.vocab_size, head.weight.shape[0]
    tied = options["tie_embeddings"]
    weight = "self.embed.weight" if tied else "self.head.weight"
    cut = "[: c.vocab_size]" if rows != vocab else ""
    modules, lines, dim = [], [], w.value("dim", plan.output.dim)
    read = (
        dim
        if head.weight.shape[1] == plan.output.dim
        else w.value("embed_dim", head.weight.shape[1])
    )
    rows_text = w.value("vocab_size" if rows == vocab else "vocab_rows", rows)
    plain = head.transform is None and head.scales is None and head.logit_scaling == UNSCALED
    if not tied and plain and not cut and options["head_bias"] != "fixed":
        bias = "" if head.bias is not None else ", bias=False"
        return [f"self.head = nn.Linear({dim}, {rows_text}{bias})"], ["return self.head(x)"]
    if not (tied and head.bias is None and head.transform is None and head.scales is None):
        modules.append("self.head = nn.Module()")
    if not tied:
        modules.append(f"self.head.weight = nn.Parameter(0.02 * torch.randn({rows_text}, {read}))")
    if head.bias is not None and options["head_bias"] == "fixed":
        modules.append(f'self.head.register_buffer("bias", torch.zeros({rows_text}))')
    elif head.bias is not None:
        modules.append(f"self.head.bias = nn.Parameter(torch.zeros({rows_text}))")
    if isinstance(head.transform, Transform):
        bias = "" if head.transform.dense.bias is not None else ", bias=False"
        modules.append("self.head.transform = nn.Module()")
        modules.append(f"self.head.transform.dense = nn.Linear({dim}, {read}{bias})")
        norm = norm_call(w, head.transform.norm, "norm", read)
        modules.append(f"self.head.transform.norm = {norm}")
        act = expression(name_of(head.transform.activation), "self.head.transform.dense(x)")
        lines.append(f"x = self.head.transform.norm({act})")
    elif head.transform is not None:
        modules.append(f"self.head.transform = nn.Linear({dim}, {read}, bias=False)")
        lines.append("x = self.head.transform(x)")
    weight += cut
    bias = f", self.head.bias{cut}" if head.bias is not None else ""
    if head.scales is not None:
        modules.append(f"self.head.scales = nn.Parameter(torch.ones({rows_text}))")
        lines.append(f"scale = {head.root_dim} * self.head.scales{cut}")
        weight = f"{weight} * scale[:, None]"
        bias = f"{bias} * scale" if bias else ""
    logits = f"F.linear(x, {weight}{bias})"
    by_dim = options["logit_scale"] == "per_root_dim"
    return modules, [*lines, *_logit_lines(logits, head.logit_scaling, dim, by_dim)]


def _logit_lines(logits: str, scaling: LogitScaling, dim: str, by_dim: bool) -> list[str]:
    """The lines that return logits, scaled and bounded; by_dim: by dim^-0.5."""
    if by_dim:
        logits += f" * {dim}**-0.5"
    elif scaling.factor != 1.0:
        logits += f" * {scaling.factor!r}"
    if scaling.softcap is None:
        return [f"return {logits}"]
    cap = float(scaling.softcap)
    return [f"logits = {logits}", f"return {cap} * torch.tanh(logits / {cap})"]
