"""Compares an ejected file with the model that it was written from."""

import copy
import linecache
import subprocess
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from xformer_kit.eject.ejected import kernel_of
from xformer_kit.kernel import KERNELS
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model
from xformer_kit.plan import model_plan
from xformer_kit.registry import config_error

ROWS, LENGTH = 2, 12


def as_module(source: str, name: str = "ejected") -> ModuleType:
    """Returns the module of an ejected file."""
    module, file = ModuleType(name), f"<{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), module.__dict__)
    return module


def check(source: str, model: Model, config: Mapping[str, Any]) -> bool:
    """Raises ConfigError if names or shapes of the weights of an ejected file, or its logits with
    the kernel that it names, are not those of a model. Returns whether logits were compared: not
    for a model on the meta device.

    config: of the model.
    """
    module, meta = as_module(source), model.embed.weight.is_meta
    with torch.device("meta" if meta else "cpu"):
        ejected = module.Transformer(module.Config())
        ours = build_model(
            with_kernel(config), model.vocab_size, model.source_vocab_size, initial_weights=False
        )
    state = model.state_dict()
    names = {name: tuple(tensor.shape) for name, tensor in ejected.state_dict().items()}
    own = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if names != own:
        first = sorted(set(names.items()) ^ set(own.items()))[0]
        raise config_error("model", "has other weights than the file that was written", first)
    if meta:
        return False
    for one in (ejected, ours):
        one.load_state_dict(state, assign=True)
        one.eval()
    with torch.no_grad():
        far = float((logits(ours, ours) - logits(ejected, ours)).abs().max())
    if far:
        rule = "has other logits than its file, which was not written"
        raise config_error("model", rule, got=f"a difference of {far:.1e}")
    return True


def formatted(source: str) -> str:
    """Returns the source as ruff formats it, if ruff is installed."""
    command = [sys.executable, "-m", "ruff", "format", "--line-length", "100", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    print("ruff is not installed: some lines of the file are long.", file=sys.stderr)
    return source


def with_kernel(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config with the kernel of its ejected file."""
    own = copy.deepcopy(dict(config))
    name = kernel_of(model_plan(config))
    if name == "reference" or own["kernel"]["name"] not in ("auto", name):
        own["kernel"] = KERNELS.complete(name)
    return own


def logits(model: Any, like: Model) -> Tensor:
    """Logits of a model, ours or ejected, for random texts."""
    draw = torch.Generator().manual_seed(0)
    device = like.embed.weight.device

    def ids(size: int, length: int) -> Tensor:
        return torch.randint(size, (ROWS, length), generator=draw).to(device)

    if not like.two_stacks:
        return model(ids(like.vocab_size, LENGTH))
    source = ids(like.source_vocab_size, LENGTH - 2)
    target = ids(like.vocab_size, LENGTH)
    return model(source=source, target=target) if model is like else model(source, target)
