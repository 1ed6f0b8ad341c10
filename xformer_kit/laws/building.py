"""Laws of building a model: initial weights, tied weights, saving and loading."""

import io
import json
import random
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from xformer_kit.config import config_yaml, read_config
from xformer_kit.laws.registry import law
from xformer_kit.laws.tiny_composition import (
    Composition,
    build_tiny_model,
    faults,
    tiny_node,
    with_model_options,
)
from xformer_kit.model.build import model_parts
from xformer_kit.model.model import Model
from xformer_kit.plan import KINDS, model_plan
from xformer_kit.registry import REQUIRED, Node
from xformer_kit.tensors import parameter_table
from xformer_kit.tensors.parameter_places import parameter_places
from xformer_kit.tensors.tokens import Tokens

_sampled: ContextVar[bool] = ContextVar("sampled comparisons", default=False)


def initial_model(config: Node, torch_seed: int = 0) -> Model:
    """Builds a model with torch's global generator at seed `torch_seed`, and restores it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(torch_seed)
        return build_tiny_model(config)


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Returns the parameters and buffers of a model by name."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


@law("start")
def initial_weights(composition: Composition) -> None:
    """Initial weights are a pure function of (seed, name, shape): another component does not change
    those of the components that both models have.

    Fails: decoder.0.ffn.up.weight starts elsewhere with attn=latent.
    Fix: Leave initial weights to `init`, or draw them in the method `initial` with the generator
        that it receives; draw none in the constructor.
    """
    config = composition.config
    model = initial_model(config)
    initial, again = tensors(model), tensors(initial_model(config, torch_seed=1))
    for name, value in initial.items():
        if not torch.equal(value, again[name]):
            raise composition.broken(
                f"{name} starts elsewhere when torch's generator does; draw it in `initial`"
            )
    other_seed = with_model_options(config, seed=model_plan(config).seed + 1)
    changed = tensors(initial_model(other_seed))
    if all(torch.equal(value, changed[name]) for name, value in initial.items()):
        raise composition.broken("another seed gives the same weights")
    for overrides, other in _other_configs(config):
        _compare_initial(composition, model, initial_model(other), overrides)


def _other_configs(config: Node) -> Iterator[tuple[str, Node]]:
    """Yields, with its overrides, the config with each other component in turn; within
    `sampled_comparisons`, only two configs, each with random components for half of the kinds.
    """
    if not _sampled.get():
        for kind, registry in KINDS.items():
            yield from _accepted_changes(config, kind, registry)
        return
    draw = random.Random(json.dumps(config))
    kinds = draw.sample(list(KINDS), len(KINDS))
    for half in (kinds[::2], kinds[1::2]):
        changed, overrides = config, []
        for kind in half:
            names = draw.sample(list(KINDS[kind]), len(KINDS[kind]))
            override, changed = next(_accepted_changes(changed, kind, names), ("", changed))
            overrides += [override] if override else []
        yield " and ".join(overrides), changed


def _accepted_changes(config: Node, kind: str, names: Iterable[str]) -> Iterator[tuple[str, Node]]:
    """Yields, with its override, the config with each of these components, if it is accepted."""
    for name in names:
        if name != config[kind]["name"] and REQUIRED not in KINDS[kind].defaults(name).values():
            changed = {**config, kind: tiny_node(kind, name)}
            if not faults(changed):
                yield f"{kind}={name}", changed


@contextmanager
def sampled_comparisons() -> Iterator[None]:
    """Makes the law `start` faster if many compositions are checked: each is compared with one
    random component of each kind, so that together they cover all.
    """
    token = _sampled.set(True)
    try:
        yield
    finally:
        _sampled.reset(token)


def _compare_initial(composition: Composition, model: Model, other: Model, overrides: str) -> None:
    """Raises LawBroken if a parameter of the other model does not start as that of the same name
    and shape, in modules of the same classes. A matrix whose size another component may change is
    compared up to its size.
    """
    scaled, initial = _scaled(model) | _scaled(other), dict(model.named_parameters())
    for name, value in other.named_parameters():
        expected = initial.get(name)
        if expected is None or expected.shape != value.shape:
            continue
        if _classes(model, name) != _classes(other, name):
            continue  # another component has a parameter of this name
        if name in scaled and value.abs().max() > 0:
            expected = expected * (value.norm() / expected.norm())
        if not (torch.equal(expected, value) or torch.allclose(expected, value, rtol=1e-5, atol=0)):
            raise composition.broken(f"{name} starts elsewhere with {overrides}")


def _classes(model: nn.Module, name: str) -> list[type]:
    """Returns the classes of the modules that contain a parameter, the outermost first."""
    path = name.split(".")[:-1]
    return [type(model.get_submodule(".".join(path[: i + 1]))) for i in range(len(path))]


def _scaled(model: Model) -> set[str]:
    """Names of the matrices that are divided by the number of residual matrices, which a component
    may change, or multiplied by the gain of a placement.
    """
    table, places = parameter_table(model), parameter_places(model)
    return {
        name
        for name, parameter in model.named_parameters()
        if table[name].writes
        or (table[name].scales_output and parameter in places and places[parameter].gain != 1)
    }


@law("residual multiplier")
@torch.no_grad()
def residual_multiplier(composition: Composition) -> None:
    """Outputs of sublayers pass through `total`, which applies dropout, stochastic depth and the
    residual multiplier: with a multiplier of 0 they have no effect.

    Fails: with a residual multiplier of 0, a sublayer matters: the gap is 1.20e+00, allowed is
        0.00e+00.
    Fix: In a placement call f(x), or apply `f.total` to the outputs before they are added.
    """
    config = with_model_options(composition.config, residual_multiplier=0.0)
    model = composition.model(**config)
    before = composition.all_logits(model)
    for sublayer in _sublayers(model):
        for parameter in sublayer.parameters():
            parameter.mul_(-2.0)
    after = composition.all_logits(model)
    composition.assert_close(
        after, before, "with a residual multiplier of 0, a sublayer matters", 0
    )


def _sublayers(model: Model) -> Iterator[nn.Module]:
    """Yields all sublayers of all blocks."""
    stacks: list[Any] = [model.get_submodule(name) for name in model.names]
    for stack in stacks:
        for block in stack.named_blocks.values():
            yield from (sub for name, sub in block.named_children() if name != "placement")


@law("tying")
def tying(composition: Composition) -> None:
    """Tied or shared matrices (head, embedding, source embedding) are one storage with one name,
    also after a cast and after loading; others are not.

    Fails: after loading the head and the embedding are two storages.
    Fix: Use the embedding that the model passes, and copy neither it nor the head.
    """
    options, model = composition.config["model"], composition.model()
    saved = io.BytesIO()
    torch.save(model.state_dict(), saved)
    saved.seek(0)
    # In training mode a component may be random.
    loaded = initial_model(composition.config).double().eval()
    loaded.load_state_dict(torch.load(saved, weights_only=True))
    for when, one in (("after casting", model), ("after loading", loaded)):
        tied = one.head.weight.data_ptr() == one.embed.weight.data_ptr()
        if tied != options["tie_embeddings"]:
            count = "one" if tied else "two"
            raise composition.broken(f"{when} the head and the embedding are {count} storages")
        if composition.source is None:
            continue
        shared = _source_shares_embedding(composition, one)
        if shared != options["share_embeddings"]:
            count = "one" if shared else "two"
            raise composition.broken(f"{when} source and target are embedded by {count} matrices")
    if options["tie_embeddings"] and "head.weight" in model.state_dict():
        raise composition.broken(
            "a tied head is saved twice: state_dict has head.weight and embed.weight"
        )
    with torch.no_grad():
        got, expected = (composition.all_logits(one) for one in (loaded, model))
        composition.assert_close(got, expected, "a loaded model differs from the saved one", 0)


@torch.no_grad()
def _source_shares_embedding(composition: Composition, model: Model) -> bool:
    """Whether a change of the decoder's embedding changes the output of the encoder."""
    weight, source = model.embed.weight, Tokens(ids=composition.source)
    before, original = model.encode(source)[0].hidden, weight.clone()
    weight += torch.arange(weight.numel()).view(weight.shape).sin()
    after = model.encode(source)[0].hidden
    weight.copy_(original)
    return not torch.equal(before, after)


@law("rebuild")
def rebuild(composition: Composition) -> None:
    """The saved config rebuilds an equal model, with the same initial weights, buffers and outputs,
    also on the meta device, and in parts of which each is on it but for some blocks; two forward
    passes of a model are equal.

    Fails: decoder.0.attn.table has other values in the rebuilt model.
    Fix: Compute buffers from the options alone: no random numbers, counters or files. Create every
        parameter in the constructor, on any device, and draw nothing in evaluation mode.
    """
    model = composition.model()  # a new model, to detect changes by its first forward pass
    with tempfile.TemporaryDirectory() as run:
        (Path(run) / "config.yaml").write_text(config_yaml(composition.config), encoding="utf-8")
        config = read_config(run)
    if config != composition.config:
        changed = [key for key, value in composition.config.items() if config.get(key) != value]
        raise composition.broken(
            f"the config changes when it is saved and read: {', '.join(changed)}"
        )
    initial, rebuilt = initial_model(composition.config), initial_model(config)
    with torch.device("meta"):
        empty = build_tiny_model(config)
    for one, which in (
        (rebuilt, "the rebuilt model"),
        (empty, "the model without memory (torch's meta device)"),
    ):
        if difference := _different_shapes(tensors(initial), tensors(one)):
            raise composition.broken(f"{which} has other parameters or buffers: {difference}")
    in_parts: dict[str, Tensor] = {}
    for part in model_parts(initial, 2):
        built = tensors(build_tiny_model(config, part))
        in_parts |= {name: value for name, value in built.items() if not value.is_meta}
    for name, value in tensors(initial).items():
        if not torch.equal(value, tensors(rebuilt)[name]):
            raise composition.broken(f"{name} has other values in the rebuilt model")
        if name not in in_parts or not torch.equal(value, in_parts[name]):
            raise composition.broken(f"{name} has other values in a model that is built in parts")
    rebuilt.double().eval().load_state_dict(model.state_dict())
    with torch.no_grad():
        logits = composition.all_logits(model)
        for one, message in (
            (rebuilt, "the rebuilt model computes something else"),
            (model, "the model computes something else the second time"),
        ):
            composition.assert_close(composition.all_logits(one), logits, message, 0)


def _different_shapes(tensors: dict[str, Tensor], others: dict[str, Tensor]) -> str:
    """Returns the first name whose shape differs, or that only one of the two has; "" if none."""
    shapes, other = ({name: tuple(t.shape) for name, t in all.items()} for all in (tensors, others))
    differing = (name for name in shapes | other if shapes.get(name) != other.get(name))
    name = next(differing, None)
    if name is None:
        return ""
    return f"{name} is {other.get(name, 'missing')}, not {shapes.get(name, 'missing')}"
