"""One of two processes: trains every composition sharded, and saves what came out.

python sharded_worker.py RANK DIRECTORY
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from compositions import ALL, CONTRACT_MODULES, TWO_STACKS, batch, given, loss_of, model_of
from test_checkpointing import by_wrapper, stacks_of
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import DTensor

from xformer_kit.model.compiling import compile_blocks
from xformer_kit.model.model import Model
from xformer_kit.model.sharding import shard
from xformer_kit.tensors.tokens import Tokens

WORLD, STEPS, ROWS = 2, 2, 4  # processes, optimizer steps, rows of all processes together
VARIANTS = {
    name: (name, None) for name in ALL | TWO_STACKS if name not in ("t5_reference", "alibi")
} | {
    "two_checkpointed": ("two_apart", "checkpoint"),
    "two_half": ("two_stacks", "half"),
    "checkpointed": ("router", "checkpoint"),
    "compiled": ("t5", "compile"),
    "half": ("first_values", "half"),
}


def data(step: int, rank: int | None = None) -> Tokens:
    """The batch of a step, or the rows of it that a rank takes: with padding, so that ranks differ
    in tokens.
    """
    tokens = batch(ROWS, seed=10 + step, padded=True)
    return tokens if rank is None else tokens.map(lambda field: field[rank::WORLD])


def train(model: Model, ranks: Sequence[int], gather: Callable[[Tensor], None]) -> list[float]:
    """The losses of these ranks' rows, step by step. The optimizer sees the mean gradient of all
    ranks, the components the sum of what was reported; `gather` adds up a tensor over processes, in
    place.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.01, eps=1e-3
    )  # eps: rounding error moves nothing
    losses = []
    for step in range(STEPS):
        total: dict[str, Tensor] = {}
        for rank in ranks:
            loss, report = loss_of(model, data(step, rank))
            (loss / len(ranks)).backward()
            losses.append(loss.item())
            total = {name: total.get(name, 0) + value.detach() for name, value in report.items()}
        optimizer.step()
        optimizer.zero_grad()
        for value in total.values():
            gather(value)
        model.after_step(total)
    return losses


@torch.no_grad()
def outcome(model: Model, losses: list[float]) -> dict[str, Any]:
    """What the trained model is and does."""
    tokens = data(0)
    hidden, _ = model.hidden(tokens, **given(model, tokens))
    said = {f"source{key}": value for key, value in _plain(given(model, tokens)).items()}
    some = {key: value[2:] for key, value in said.items()}
    return {
        "losses": losses,
        "logits": model(tokens.ids, real=tokens.real, **said),
        "hidden": hidden,
        "generated": model.generate(tokens.ids[2:, :5], max_new_tokens=4, temperature=0.0, **some),
    }


def _plain(source: dict[str, Tokens]) -> dict[str, Tensor]:
    return {
        key: value
        for tokens in source.values()
        for key, value in (("", tokens.ids), ("_real", tokens.real))
    }


def prepared(name: str, mesh: DeviceMesh) -> Model:
    base, how = VARIANTS[name]
    model, policy = model_of(base), {}
    if how == "checkpoint":
        by_wrapper(model)
    if how == "compile":
        compile_blocks(model, fullgraph=True, backend="aot_eager")
    if how == "half":
        policy["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    return shard(model, mesh, **policy)


def whole(value: Tensor) -> Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def run(name: str, rank: int, mesh: DeviceMesh) -> dict[str, Any]:
    model = prepared(name, mesh)
    losses = train(model, [rank], dist.all_reduce)
    local = {
        key: value.to_local().numel() for key, value in model.named_parameters()
    }  # sharded, after a step
    with torch.no_grad():
        early = model.head(
            torch.ones(1, 2, 24, dtype=torch.float64)
        )  # only the head, before any other
    tied = model.head.weight is model.embed.weight
    state = {key: whole(value) for key, value in model.state_dict().items()}
    block_by_block = all(
        isinstance(block, FSDPModule)
        for stack in stacks_of(model)
        for block in stack.named_blocks.values()
    )
    found = {
        "state": state,
        "local": local,
        "early": early,
        "tied": tied,
        "block by block": block_by_block,
    }
    return outcome(model, losses) | found


def main(rank: int, directory: Path) -> None:
    torch.set_num_threads(1)
    for name in CONTRACT_MODULES:
        importlib.import_module(name)
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=WORLD
    )
    mesh = init_device_mesh("cpu", (WORLD,))
    for name in VARIANTS:
        torch.save(run(name, rank, mesh), directory / f"{name}.{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
