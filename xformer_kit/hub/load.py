"""The weights of a published model in a model of ours."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

from xformer_kit.hub.family import family_of
from xformer_kit.hub.files import WeightFiles, read_config_json
from xformer_kit.hub.transfer import load_weights
from xformer_kit.model.build import build_model
from xformer_kit.model.model import Model
from xformer_kit.plan import model_plan

# Codes of safetensors.
DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F64": torch.float64,
}


DRAWS = {
    *(torch.Tensor.uniform_, torch.Tensor.normal_),
    *(init.kaiming_uniform_, init.uniform_, init.normal_),
}


def load_model(
    folder: Path,
    config: Mapping[str, Any],
    vocab_size: int,
    source_vocab_size: int | None = None,
) -> Model:
    """Returns the model of a composition with the weights of a directory of transformers, in
    evaluation mode and in the dtype of the files. No page of memory is used before a weight is
    written into it. Raises ConfigError.
    """
    family, files = family_of(read_config_json(folder)), WeightFiles(folder)
    codes = [code for code in files.dtypes.values() if code in DTYPES]
    model = empty_model(config, vocab_size, source_vocab_size, DTYPES[most_frequent(codes, "F32")])
    load_weights(files, family, model, model_plan(config))
    return model.eval()


def empty_model(
    config: Mapping[str, Any], vocab_size: int, source_vocab_size: int | None, dtype: torch.dtype
) -> Model:
    """Returns the model of a config, with weights whose values are those that the memory had."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with WithoutDraws():
            return build_model(config, vocab_size, source_vocab_size, initial_weights=False)
    finally:
        torch.set_default_dtype(before)


class WithoutDraws(TorchFunctionMode):
    """Leaves tensors as they are where modules of torch.nn draw their first values."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in DRAWS:
            return args[0] if args else (kwargs or {})["tensor"]
        return function(*args, **(kwargs or {}))


def weights_dtype(state: Mapping[str, Tensor]) -> torch.dtype:
    """The dtype that most tensors of a state have."""
    return most_frequent([tensor.dtype for tensor in state.values()], torch.float32)


def most_frequent(values: Iterable[Any], default: Any) -> Any:
    """The value that occurs most often."""
    values = list(values)
    return max(set(values), key=values.count) if values else default
