"""A model of transformers with random weights, saved in a directory, and ours, loaded from it."""

import inspect
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from xformer_kit.export import save_published
from xformer_kit.hub.transfer import Table, table_of, written
from xformer_kit.model.model import Model
from xformer_kit.parity.case import VOCAB, Case
from xformer_kit.parity.float64 import KeepFloat64, double, has_waves
from xformer_kit.parity.library import transformers
from xformer_kit.plan import model_plan
from xformer_kit.pretrained import Composition, composition_of, load_published

ROWS, LENGTH, SOURCE = 3, 13, 11
# Experts one after the other: the grouped products of torch have no float64.
EXPERTS = {"experts_implementation": "eager"}


def random_ids(length: int, seed: int) -> Tensor:
    """A batch of token ids, none of them special."""
    return torch.randint(3, VOCAB, (ROWS, length), generator=torch.Generator().manual_seed(seed))


IDS, SOURCES = random_ids(LENGTH, 3), random_ids(SOURCE, 4)
# Lengths of the texts of a padded batch.
LENGTHS = torch.tensor([LENGTH, 9, 4])[:, None]
RIGHT = torch.arange(LENGTH) < LENGTHS
LEFT = RIGHT.flip(-1)
SOURCE_REAL = torch.arange(SOURCE) < torch.tensor([5, SOURCE, 8])[:, None]


# Methods of modules whose positions are the numbers of ids that are no padding.
COUNT_IDS = ("create_position_ids_from_inputs_embeds", "make_positions")


@dataclass(eq=False)
class Pair:
    """Both models of a case in float64, theirs without casts to fp32, and the directory of files
    from which ours was loaded.
    """

    case: Case
    theirs: Any
    ours: Model
    composition: Composition
    folder: Path

    @property
    def table(self) -> Table:
        return table_of(self.composition.family, self.ours, model_plan(self.composition.config))

    @cached_property
    def in_fp32(self) -> tuple[Any, Model]:
        """Their model and ours in fp32."""
        return load(self.folder, torch.float32), load_published(self.folder).float()

    @cached_property
    def exported(self) -> Path:
        """The directory that our model was exported to."""
        folder = self.folder / "exported"
        model_type = json.loads((self.folder / "config.json").read_text())["model_type"]
        save_published(folder, self.ours, self.composition.config, [model_type])
        return folder


# Buffers of transformers with biases of logits and of routers.
BIASES = ("final_logits_bias", "e_score_correction_bias", "expert_bias")


def randomise(model: Any) -> Any:
    """Sets every parameter to random values, also biases and weights of norms, which are near 0 and
    1 else, and biases of logits that are buffers.
    """
    torch.manual_seed(11)
    with torch.no_grad():
        tables = {id(m.weight) for m in model.modules() if hasattr(m, "weight") and has_waves(m)}
        for parameter in model.parameters():
            if id(parameter) in tables:
                continue
            scale = 0.3 if parameter.ndim < 2 else parameter.shape[-1] ** -0.5
            parameter.mul_(1.0 if parameter.ndim < 2 else 0.0).add_(
                torch.randn(parameter.shape), alpha=scale
            )
        for name, buffer in model.named_buffers():
            if name.rpartition(".")[2] in BIASES:
                buffer.normal_(0, 0.1)
    return model


def their_model(case: Case, kernel: str = "eager") -> Any:
    """The model of a case with random weights, in evaluation mode."""
    cls = getattr(transformers(), case.architecture)
    kernel = "sdpa" if case.config.get("alibi") else kernel  # Falcon's eager adds ALiBi twice
    config = cls.config_class(**case.config, attn_implementation=kernel, **EXPERTS)
    torch.manual_seed(12)  # some of its first values are random too
    return randomise(cls(config)).eval()


def make_pair(case: Case, folder: Path) -> Pair:
    """Saves the model of a case in float64, and loads it."""
    theirs = double(their_model(case))
    theirs.save_pretrained(folder)
    composition = composition_of(json.loads((folder / "config.json").read_text()))
    return Pair(case, theirs, load_published(folder), composition, folder)


def their_logits(theirs: Any, real: Tensor | None = None, ids: Tensor = IDS) -> Tensor:
    """Logits of their model for a batch; `real` marks its padding, for two stacks the source's."""
    mask = None if real is None else real.long()
    counts_ids = any(hasattr(m, name) for m in theirs.modules() for name in COUNT_IDS)
    with KeepFloat64():
        if theirs.config.is_encoder_decoder:
            source = SOURCES
            if real is not None and counts_ids:
                source = SOURCES.masked_fill(~real, theirs.config.pad_token_id)
            more = {"decoder_input_ids": ids, "use_cache": False}
            return theirs(source, attention_mask=mask, **more).logits
        more = {}
        if real is not None and counts_ids:
            ids = ids.masked_fill(~real, theirs.config.pad_token_id)
        elif mask is not None and "position_ids" in inspect.signature(theirs.forward).parameters:
            more = {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}  # as `generate` does
        return theirs(ids, attention_mask=mask, **more).logits


def our_logits(ours: Model, real: Tensor | None = None, ids: Tensor = IDS) -> Tensor:
    """The same of ours."""
    if ours.two_stacks:
        return ours(source=SOURCES, target=ids, source_real=real)
    return ours(ids, real=real)


def loss_of(logits: Tensor) -> Tensor:
    """A loss of which every parameter has a gradient."""
    draw = torch.Generator().manual_seed(9)
    weights = torch.randn(logits.shape, generator=draw).to(logits.dtype)
    return (logits.log_softmax(-1) * weights).sum() / logits.shape[1]


def their_gradients(theirs: Any, folder: Path) -> dict[str, Tensor]:
    """Gradients of their parameters by the names of their files."""
    loss_of(their_logits(theirs)).backward()
    found = {
        name: torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        for name, tensor in theirs.state_dict(keep_vars=True).items()
    }
    theirs.save_pretrained(folder, state_dict=found)
    theirs.zero_grad()
    return load_file(folder / "model.safetensors")


def our_gradients(ours: Model, table: Table) -> dict[str, Tensor]:
    """Gradients of our parameters by the names of their files."""
    ours.zero_grad()
    loss_of(our_logits(ours)).backward()
    tensors = ours.state_dict(keep_vars=True)  # with buffers, whose gradients are 0
    values = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.copy_(torch.zeros_like(tensor) if tensor.grad is None else tensor.grad)
    found = {name: tensor.detach().clone() for name, tensor in written(table, ours)}
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(values[name])
    ours.zero_grad()
    return found


def distance(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    return float((ours - theirs).detach().abs().max() / theirs.detach().abs().max())


def load(folder: Path, dtype: torch.dtype, kernel: str = "eager") -> Any:
    """Their model from a directory."""
    config = json.loads((folder / "config.json").read_text())
    cls = getattr(transformers(), config["architectures"][0])
    kernel = "sdpa" if config.get("alibi") else kernel
    options = {"dtype": dtype, "attn_implementation": kernel, **EXPERTS}
    return cls.from_pretrained(folder, **options).eval()


def files_of(folder: Path) -> dict[str, Tensor]:
    """The tensors in the files of a directory."""
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(path)
    return tensors
