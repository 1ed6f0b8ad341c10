"""One of two processes that hold a half of every parameter: compares the gradients of rows that
contain every component with those of one process that holds all.

python sharding_worker.py RANK DIRECTORY
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn import functional as F

from tests.laws.rows import each_choice
from xformer_kit.laws.tiny_composition import VOCAB, Composition
from xformer_kit.laws.variants import config_of, row_label
from xformer_kit.model.model import Model
from xformer_kit.model.sharding import shard
from xformer_kit.tensors import canonical
from xformer_kit.tensors.shards import is_shard, whole
from xformer_kit.tensors.tokens import Tokens

WORLD, TOLERANCE = 2, 1e-9


def backward(model: Model, composition: Composition, rows: slice) -> None:
    """The gradients of a loss that is a sum over these rows of the batch."""
    ids, source = composition.ids, composition.source
    target = (3 * ids + 1) % VOCAB
    source = None if source is None else Tokens(ids=source[rows])
    hidden, _ = model.hidden(Tokens(ids=ids[rows]), source=source, multi_token=True)
    logits = model.head(hidden)
    targets = target[rows].expand(logits.shape[:-1]).flatten()
    F.cross_entropy(logits.flatten(0, -2), targets, reduction="sum").backward()


def wrong_gradients(composition: Composition, rank: int, mesh: DeviceMesh) -> Iterator[str]:
    """Yields the parameters whose gradient differs from that of one process, and those that are
    not divided.
    """
    one, divided = composition.trainable_model(), composition.trainable_model()
    shard(divided, mesh)
    backward(one, composition, slice(None))
    backward(divided, composition, slice(rank, None, WORLD))
    expected = {canonical(name): p.grad for name, p in one.named_parameters()}
    largest = max(grad.abs().max() for grad in expected.values() if grad is not None)
    for name, parameter in divided.named_parameters():
        grad, exact = parameter.grad, expected[canonical(name)]
        if grad is None or not is_shard(parameter):
            yield name
            continue
        # Sharding averages over processes the gradients of a loss that is a sum over their rows.
        gap = WORLD * whole(grad) - (0.0 if exact is None else exact)
        if gap.abs().max() > TOLERANCE * largest:
            yield name


def main(rank: int, directory: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=WORLD
    )
    mesh = init_device_mesh("cpu", (WORLD,))
    found = {
        row_label(row): [*wrong_gradients(Composition(config_of(row), "sharding"), rank, mesh)]
        for row in sorted(each_choice())
    }
    (directory / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
