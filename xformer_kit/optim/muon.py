"""Muon: steps of matrices along the orthogonal factor of their momentum."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from xformer_kit.optim.adam import AdamW
from xformer_kit.optim.combined import Combined
from xformer_kit.optim.common import rate_faults, skipped
from xformer_kit.optim.grouping import OPTIMIZERS
from xformer_kit.registry import Fault, Node, at_least, in_range
from xformer_kit.tensors import ParameterInfo, canonical
from xformer_kit.tensors.parametrization import Growth
from xformer_kit.tensors.shards import is_shard, part_like, whole

COEFFICIENTS = 3.4445, -4.7750, 2.0315  # of the quintic iteration (Jordan et al., 2024)
EPS = 1e-7
# Operations of a step's iterations from which ranks share them: below, a message takes longer.
SHARED = 2**30
GATHERED = 2**26  # numbers of a sharded model's matrices that a rank has whole at once
Scale = Literal["original", "match_rms_adamw"]


@OPTIMIZERS.register("muon", similar=("normuon", "muon_adamw", "muon_with_aux_adam"))
class Muon(Combined):
    """W <- (1 - lr decay) W - lr s O, with O the orthogonal factor U V^T of the momentum G = U S
    V^T (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon), for hidden matrices by
    their role; embeddings, head and vectors are trained by `other`.

    s is sqrt(max(1, out / in)), or with scale=match_rms_adamw 0.2 sqrt(max(out, in)), with which
    rates and decays of AdamW can be kept (Liu et al., 2025, arXiv:2502.16982, section 2.2). O is
    computed by `iterations` Newton-Schulz steps, which leave singular values between 0.7 and 1.2,
    in bf16, on a CPU in fp32.

    A matrix is one map: queries, keys, values, gate and up are matrices of their own, also where
    one tensor stores them (its axes start with their number), and so is each expert. per_head: each
    head's rows of queries, keys and values, and columns of the output, is one. normalise: each row
    of O is divided by the root of its mean square over the steps (NorMuon: Li et al., 2025,
    arXiv:2510.05491, algorithm 1). With several ranks, each computes O for a part of the matrices.
    """

    def __init__(
        self,
        params: list[dict[str, Any]],
        table: Mapping[str, ParameterInfo],
        fused: bool | None = None,
        *,
        lr: float = 0.02,  # peak learning rate of matrices
        weight_decay: float = 0.1,  # factor lr * weight_decay of a matrix is subtracted per step
        momentum: float = 0.95,  # share of the old momentum that is kept
        nesterov: bool = True,  # whether the gradient is added to the momentum once more
        iterations: int = 5,  # Newton-Schulz steps
        scale: Scale = "original",  # factor of the shape on the step
        per_head: bool = False,  # whether each head is a matrix of its own
        normalise: float | None = None,  # NorMuon's decay rate of mean squares, 0.95; null is Muon
        other: Callable[..., torch.optim.Optimizer] = AdamW,  # for all other parameters
    ):
        matrices, rest = _divided(params, table)
        found: list[torch.optim.Optimizer] = []
        if matrices:
            layouts = {
                id(p): layout(p, table[canonical(name)], per_head)
                for group in matrices
                for name, p in group["params"]
            }
            defaults: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
            defaults |= {"momentum": momentum, "nesterov": nesterov}
            defaults |= {"iterations": iterations, "scale": scale, "normalise": normalise}
            found.append(_Matrices(matrices, defaults, layouts))
        if rest:
            found.append(other(params=rest, table=table, fused=fused))
        super().__init__(found)

    @staticmethod
    def width_divisor(options: Node, shape: Sequence[int], growth: Growth) -> float:
        """The singular values of a step are in proportion to sqrt(out / in) at every width (Yang et
        al., 2023, arXiv:2310.17813, condition 1).
        """
        if len(shape) < 2:  # trained by `other`
            return growth.inputs
        out, into = shape[-2:]
        at_base = shape_factor(options["scale"], out / growth.outputs, into / growth.inputs)
        now = shape_factor(options["scale"], out, into)
        return now / at_base * math.sqrt(growth.inputs / growth.outputs)

    @classmethod
    def check(cls, options, context):
        yield from rate_faults(options, "Try 0.02.")
        yield from in_range(options, momentum=(0, 1), normalise=(0, 1))
        yield from at_least(options, iterations=1)
        other = OPTIMIZERS.as_node(options.other)
        if isinstance(other, Mapping) and other["name"] == "muon":
            rule = "trains what is no hidden matrix, and muon trains hidden matrices"
            yield Fault("other", rule, "muon", "Try adamw.")


def shape_factor(scale: Scale, out: float, into: float) -> float:
    """Returns s of a matrix (out, in)."""
    if scale == "match_rms_adamw":
        return 0.2 * math.sqrt(max(out, into))
    return math.sqrt(max(1.0, out / into))


def _divided(
    params: Sequence[dict[str, Any]], table: Mapping[str, ParameterInfo]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The groups of hidden matrices, and those of all other parameters, for which a rate of the
    group is that of hidden matrices.
    """
    matrices, rest = [], []
    for group in params:
        hidden = [m for m in group["params"] if _is_matrix(m[1], table[canonical(m[0])])]
        others = [m for m in group["params"] if not _is_matrix(m[1], table[canonical(m[0])])]
        matrices += [{**group, "params": hidden}] if hidden else []
        name = group.get("group") or "other"
        rest += [{**group, "params": others, "group": name}] if others else []
    return matrices, rest


def _is_matrix(parameter: Tensor, info: ParameterInfo) -> bool:
    return info.role == "hidden" and parameter.ndim >= 2


class Layout:
    """Which matrices a parameter stores: a view (n, out, in).

    rows, columns: number of blocks of its output and of its input axis that are matrices.
    """

    def __init__(self, rows: int = 1, columns: int = 1):
        self.rows, self.columns = rows, columns

    def split(self, x: Tensor) -> Tensor:
        """(..., out, in) -> (n, out / rows, in / columns)."""
        x = x.unflatten(-1, (self.columns, -1)).unflatten(-3, (self.rows, -1))
        return x.movedim(-2, -4).flatten(0, -3)

    def join(self, x: Tensor, like: Tensor) -> Tensor:
        """The inverse of `split`, in the shape of `like`."""
        *front, out, into = like.shape
        x = x.view(*front, self.columns, self.rows, out // self.rows, into // self.columns)
        return x.movedim(-4, -2).reshape(like.shape)


def layout(parameter: Tensor, info: ParameterInfo, per_head: bool) -> Layout:
    """Returns the matrices that a parameter stores: as many as the number before its first axis, or
    one for each head.
    """
    axes = info.axes or ()
    first = axes[-2].split("*")[0] if len(axes) >= 2 else ""
    rows = int(first) if first.isdigit() and int(first) > 0 else 1
    if per_head and info.head_channels and len(axes) >= 2:
        sizes = [
            n // info.head_channels if "*" in axis and "heads" in axis.split("*")[0] else 1
            for axis, n in zip(axes[-2:], parameter.shape[-2:], strict=True)
        ]
        return Layout(*sizes)
    return Layout(rows)


class _Matrices(torch.optim.Optimizer):
    """The steps of matrices. State of each: `momentum` in its shape, and `squares` (n, out, 1)."""

    _step_supports_amp_scaling = True

    def __init__(
        self, params: list[dict[str, Any]], defaults: dict[str, Any], layouts: dict[int, Layout]
    ):
        super().__init__(params, defaults)
        self.layouts = layouts

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        found, iterations = skipped(self), self.param_groups[0]["iterations"]
        for members in self._chunks():
            directions = [self._direction(p, group, found) for p, group in members]
            orthogonal = orthogonalised(directions, iterations)
            for (p, group), matrices in zip(members, orthogonal, strict=True):
                self._move(p, group, matrices, found)

    def _chunks(self) -> Iterator[list[tuple[Tensor, dict[str, Any]]]]:
        """Yields parameters that are stepped together, with their groups: all; of a sharded model,
        whose matrices each rank needs whole, as many as have GATHERED numbers.
        """
        chunk: list[tuple[Tensor, dict[str, Any]]] = []
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                numbers = sum(other.numel() for other, _ in chunk)
                if is_shard(p) and chunk and numbers + p.numel() > GATHERED:
                    yield chunk
                    chunk = []
                chunk.append((p, group))
        yield chunk

    def _direction(self, p: Tensor, group: dict[str, Any], found: Tensor | None) -> Tensor:
        """Updates the momentum, and returns the matrices (n, out, in) to orthogonalise."""
        assert p.grad is not None
        state = self.state[p]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(p)
        momentum, beta = state["momentum"], group["momentum"]
        # Of a step that changes nothing the gradient may be NaN, which 0 * NaN would keep.
        grad = p.grad if found is None else torch.where(found > 0, momentum, p.grad)
        momentum.lerp_(grad, 1 - beta)
        chosen = grad.lerp(momentum, beta) if group["nesterov"] else momentum
        return self.layouts[id(p)].split(whole(chosen))

    def _move(
        self, p: Tensor, group: dict[str, Any], matrices: Tensor, found: Tensor | None
    ) -> None:
        """Changes a parameter along its orthogonal matrices."""
        *_, out, into = matrices.shape
        factor = shape_factor(group["scale"], out, into)
        rate: Any = group["lr"] if found is None else group["lr"] * (1 - found)
        if (beta := group["normalise"]) is not None:
            matrices = self._normalised(p, matrices.to(p.dtype), beta, found)
        step = part_like(self.layouts[id(p)].join(matrices, p).to(p.dtype), p)
        p.mul_(1 - rate * group["weight_decay"])
        p.sub_(step * (rate * factor))

    def _normalised(self, p: Tensor, matrices: Tensor, beta: float, found: Tensor | None) -> Tensor:
        """The matrices with rows divided by the root of their mean square over steps, and the norm
        that they had.
        """
        state, squares = self.state[p], matrices.square().mean(-1, keepdim=True)
        if "squares" not in state:
            state["squares"] = torch.zeros_like(squares)
        share = 1 - beta if found is None else (1 - beta) * (1 - found)
        state["squares"].add_((squares - state["squares"]) * share)
        rows = matrices / (state["squares"].sqrt() + EPS)
        norm = torch.linalg.matrix_norm
        return rows * (norm(matrices) / norm(rows).clamp(min=EPS))[..., None, None]


def orthogonalised(matrices: Sequence[Tensor], iterations: int) -> list[Tensor]:
    """Returns the orthogonal factor of each matrix, (n, out, in) each, in a dtype for products.

    Matrices of one shape are computed together. With several ranks each computes a part, and all
    receive the others' in one message, unless the message would take longer.
    """
    units = [one for of_one in matrices for one in of_one]
    ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    costs = [_operations(one, iterations) for one in units]
    if ranks > 1 and sum(costs) > SHARED:
        found = _shared(units, iterations, costs, ranks)
    else:
        found = _by_shape(units, iterations)
    parts = iter(found)
    return [torch.stack([next(parts) for _ in of_one]) for of_one in matrices]


def _operations(matrix: Tensor, iterations: int) -> int:
    """Multiplications and additions of the iterations of one matrix."""
    small, large = sorted(matrix.shape)
    return iterations * (4 * small * small * large + 2 * small**3)


def _by_shape(units: Sequence[Tensor], iterations: int) -> list[Tensor]:
    """Orthogonalises matrices, those of one shape as one batch."""
    places: dict[tuple[int, ...], list[int]] = {}
    for place, one in enumerate(units):
        places.setdefault(tuple(one.shape), []).append(place)
    found: dict[int, Tensor] = {}
    for same in places.values():
        batch = newton_schulz(torch.stack([units[place] for place in same]), iterations)
        found |= dict(zip(same, batch, strict=True))
    return [found[place] for place in range(len(units))]


def _shared(
    units: Sequence[Tensor], iterations: int, costs: Sequence[int], ranks: int
) -> list[Tensor]:
    """Orthogonalises the matrices of this rank, and receives those of the others."""
    load, owner = [0] * ranks, [0] * len(units)
    for place in sorted(range(len(units)), key=lambda place: (-costs[place], place)):
        owner[place] = min(range(ranks), key=load.__getitem__)
        load[owner[place]] += costs[place]
    held = [[place for place, of in enumerate(owner) if of == rank] for rank in range(ranks)]
    size = max(sum(units[place].numel() for place in places) for places in held)
    mine = _by_shape([units[place] for place in held[dist.get_rank()]], iterations)
    dtype, device = product_dtype(units[0]), units[0].device
    sent = torch.zeros(size, dtype=dtype, device=device)
    flat = torch.cat([one.flatten() for one in mine]) if mine else sent[:0]
    sent[: len(flat)] = flat
    received = sent.new_empty(ranks * size)
    dist.all_gather_into_tensor(received, sent)
    found: dict[int, Tensor] = {}
    for rank, places in enumerate(held):
        found |= dict(_cut(received[rank * size :], places, units))
    return [found[place] for place in range(len(units))]


def _cut(
    flat: Tensor, places: Sequence[int], units: Sequence[Tensor]
) -> Iterator[tuple[int, Tensor]]:
    start = 0
    for place in places:
        end = start + units[place].numel()
        yield place, flat[start:end].view(units[place].shape)
        start = end


def product_dtype(x: Tensor) -> torch.dtype:
    """bf16, in which the iterations converge as well; the tensor's own on a CPU, where products in
    bf16 are up to 40 times as slow.
    """
    return x.dtype if x.device.type == "cpu" else torch.bfloat16


def newton_schulz(x: Tensor, iterations: int) -> Tensor:
    """Returns approximately U V^T of matrices U S V^T (n, out, in), in `product_dtype`.

    X <- a X + (b A + c A^2) X with A = X X^T, from X / ||X||, with the smaller side first.
    """
    a, b, c = COEFFICIENTS
    wide = x.shape[-2] <= x.shape[-1]
    x = x.to(product_dtype(x))
    x = x if wide else x.mT
    x = x / torch.linalg.matrix_norm(x).clamp(min=EPS)[..., None, None]
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT
