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
from xformer_kit.laws.composition import Composition, faults, made, sized, with_model
from xformer_kit.laws.registry import law
from xformer_kit.model.initialise import placement_gains, residual_names
from xformer_kit.model.model import Model
from xformer_kit.model.tokens import Tokens
from xformer_kit.plan import KINDS, model_plan
from xformer_kit.registry import REQUIRED, Node

_among_many: ContextVar[bool] = ContextVar("among many", default=False)


def start(config, noise: int = 0) -> Model:
    """Builds a model with torch's global generator at seed `noise`, and restores it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(noise)
        return made(config)


def held(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


@law("start")
def starts(case: Composition) -> None:
    """Initial weights are a pure function of (seed, name, shape): another component does not change
    those of the parameters that both models have.
    """
    model, again = start(case.config), held(start(case.config, noise=1))
    first, gains = held(model), set(placement_gains(model))
    for name, value in first.items():
        if not torch.equal(value, again[name]):
            raise case.broken(
                f"{name} starts elsewhere when torch's generator does; draw it in `initial`"
            )
    moved = held(start(with_model(case.config, seed=model_plan(case.config).seed + 1)))
    if all(torch.equal(value, moved[name]) for name, value in first.items()):
        raise case.broken("another seed gives the same weights")
    for change, config in _others(case.config):
        _shared(case, first, gains, start(config), change)


def _others(config: Node) -> Iterator[tuple[str, Node]]:
    """Yields the composition with each other component in turn; within `among_many`, only two
    compositions, each with random components for half of the kinds.
    """
    if not _among_many.get():
        for kind, registry in KINDS.items():
            yield from _able(config, kind, registry)
        return
    draw = random.Random(json.dumps(config))
    kinds = draw.sample(list(KINDS), len(KINDS))
    for some in (kinds[::2], kinds[1::2]):
        changed, words = config, []
        for kind in some:
            names = draw.sample(list(KINDS[kind]), len(KINDS[kind]))
            word, changed = next(_able(changed, kind, names), ("", changed))
            words += [word] if word else []
        yield " and ".join(words), changed


def _able(config: Node, kind: str, names: Iterable[str]) -> Iterator[tuple[str, Node]]:
    """Yields the composition with each of these components instead of its own, if accepted."""
    for name in names:
        if name != config[kind]["name"] and REQUIRED not in KINDS[kind].defaults(name).values():
            changed = {**config, kind: sized(kind, name)}
            if not faults(changed):
                yield f"{kind}={name}", changed


@contextmanager
def among_many() -> Iterator[None]:
    """Makes the law `start` faster if many compositions are checked: each is compared with one
    random component of each kind, so that together they cover all.
    """
    token = _among_many.set(True)
    try:
        yield
    finally:
        _among_many.reset(token)


def _shared(
    case: Composition, first: dict[str, Tensor], gains: set[str], other: Model, change: str
) -> None:
    # Divided by the number of residual matrices, which a component may change, or multiplied by the
    # gains of a placement.
    scaled = {*residual_names(other.named_modules())} | gains | set(placement_gains(other))
    for name, value in other.named_parameters():
        if name not in first or first[name].shape != value.shape:
            continue
        mine = first[name]
        if name in scaled and value.abs().max() > 0:
            mine = mine * (value.norm() / mine.norm())
        if not (torch.equal(mine, value) or torch.allclose(mine, value, rtol=1e-5, atol=0)):
            raise case.broken(f"{name} starts elsewhere with {change}")


@law("residual multiplier")
@torch.no_grad()
def multiplied(case: Composition) -> None:
    """Outputs of sublayers pass through `total`, which applies dropout, stochastic depth and the
    residual multiplier: with a multiplier of 0 they have no effect.
    """
    model = case.model(**with_model(case.config, residual_multiplier=0.0))
    before = case.predicted(model, case.ids)
    for name, parameter in model.named_parameters():
        if any(name.startswith(f"{path}.") for path in _sublayers(model)):
            parameter.mul_(-2.0)
    after = case.predicted(model, case.ids)
    case.same(after, before, "with a residual multiplier of 0, a sublayer matters", 0)


def _sublayers(model: Model) -> list[str]:
    """Returns the names of all sublayers, `decoder.0.attn`."""
    stacks: Any = {name: model.get_submodule(name) for name in model.names}
    return [
        f"{name}.{at}.{sub}"
        for name, stack in stacks.items()
        for at, block in stack.named_blocks.items()
        for sub, _ in block.named_children()
        if sub != "placement"
    ]


@law("tying")
def tying(case: Composition) -> None:
    """Tied or shared matrices (head, embedding, source embedding) are one storage with one name,
    also after a cast and after loading; others are not.
    """
    said, model = case.config["model"], case.model()
    tied, shared = said["tie_embeddings"], said["share_embeddings"]
    saved = io.BytesIO()
    torch.save(model.state_dict(), saved)
    saved.seek(0)
    # In training mode a component may be random.
    fresh = start(case.config).double().eval()
    fresh.load_state_dict(torch.load(saved, weights_only=True))
    for what, at in (("after casting", model), ("after loading", fresh)):
        one = at.head.weight.data_ptr() == at.embed.weight.data_ptr()
        if one != tied:
            raise case.broken(
                f"{what} the head and the embedding are {'one' if one else 'two'} storages"
            )
        if case.source is not None and (one := moved(case, at)) != shared:
            raise case.broken(
                f"{what} source and target are embedded by {'one' if one else 'two'} matrices"
            )
    if tied and "head.weight" in model.state_dict():
        raise case.broken("a tied head is saved twice: state_dict has head.weight and embed.weight")
    with torch.no_grad():
        again, logits = (case.predicted(one.eval(), case.ids) for one in (fresh, model))
        case.same(again, logits, "a loaded model differs from the saved one", 0)


@torch.no_grad()
def moved(case: Composition, model: Model) -> bool:
    """Whether a change of the decoder's embedding changes the output of the encoder."""
    weight, source = model.embed.weight, Tokens(ids=case.source)
    before, kept = model.encode(source)[0].hidden, weight.clone()
    weight += torch.arange(weight.numel()).view(weight.shape).sin()
    after = model.encode(source)[0].hidden
    weight.copy_(kept)
    return not torch.equal(before, after)


@law("rebuild")
def rebuild(case: Composition) -> None:
    """The saved config rebuilds an equal model, also on the meta device; two forward passes of a
    model are equal.
    """
    model = case.model()  # a new model, to detect changes by its first forward pass
    with tempfile.TemporaryDirectory() as run:
        (Path(run) / "config.yaml").write_text(config_yaml(case.config), encoding="utf-8")
        config = read_config(run)
    if config != case.config:
        changed = [key for key in case.config if config.get(key) != case.config[key]]
        raise case.broken(f"the config changes when it is saved and read: {', '.join(changed)}")
    again = start(config)
    if repr(again) != repr(model):
        raise case.broken("the rebuilt model prints differently")
    with torch.device("meta"):
        empty = made(config)
    for other, what in (
        (again, "rebuilt model"),
        (empty, "model without memory (torch's meta device)"),
    ):
        shapes = [{name: p.shape for name, p in m.named_parameters()} for m in (model, other)]
        if shapes[0] != shapes[1]:
            raise case.broken(f"the {what} has other parameters")
    again.double().eval().load_state_dict(model.state_dict())
    with torch.no_grad():
        logits = case.predicted(model, case.ids)
        for one, what in (
            (again, "the rebuilt model computes something else"),
            (model, "the model computes something else the second time"),
        ):
            case.same(case.predicted(one, case.ids), logits, what, 0)
