"""Laws of numbers: kernels agree, precisions agree, every parameter has a gradient."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import Score
from xformer_kit.kernel import KERNELS, cannot_train_on
from xformer_kit.laws.kernel_errors import (
    SMALLER,
    Bound,
    ComputeStep,
    StepTensors,
    errors_above_bound,
    largest_gradient,
)
from xformer_kit.laws.masks import visible_keys
from xformer_kit.laws.registry import law
from xformer_kit.laws.sequence import CUT, ROWS, SOURCE_CUT, SOURCE_ROWS, packed, padded
from xformer_kit.laws.tiny_composition import (
    LENGTH,
    SOURCE,
    VOCAB,
    Composition,
    NotApplicable,
    faults,
    tiny_node,
)
from xformer_kit.mask import MASKS, Mask
from xformer_kit.model.model import Model
from xformer_kit.tensors import parameter_table
from xformer_kit.tensors.tokens import Tokens

# Each token sees itself and the one before it.
WINDOW = MASKS.create({"name": "sliding_window", "window": 2})
WEIGHTS = 2, SMALLER  # further seeds of the weights: larger and smaller ones
KEYS = 64  # length of a row of scores in the test of sparsity
Batch = tuple[Tokens, Tokens | None]  # tokens of the model, and the source of an encoder-decoder


def batches(composition: Composition) -> Iterator[tuple[str, Batch]]:
    """Yields (name, batch): "plain"; "padded", if the law `padding` holds, with rows padded on the
    left, on the right and between tokens; "packed", if `documents` holds, with two documents per
    row.
    """
    ids, source = composition.ids, composition.source
    yield "plain", (Tokens(ids=ids), None if source is None else Tokens(ids=source))
    if "padding" not in composition.broken_laws:
        yield "padded", (_padded(ids), None if source is None else _padded(source, SOURCE_ROWS))
    if "documents" not in composition.broken_laws:
        of_source = None
        if source is not None:
            of_source = Tokens(ids=source, document=packed(SOURCE, SOURCE_CUT))
        yield "packed", (Tokens(ids=ids, document=packed(LENGTH, CUT)), of_source)


def _padded(ids: Tensor, rows: tuple[int, ...] = ROWS) -> Tokens:
    """Returns rows padded on the left, rows padded on the right, and one between tokens."""
    batches = [padded(ids, place, rows) for place in ("left", "right", "inside")]
    chosen = slice(None), slice(1, None), slice(2, None)  # the first row has no padding
    ids, real = (
        torch.cat([field[part] for field, part in zip(fields, chosen, strict=True)])
        for fields in zip(*batches, strict=True)
    )
    return Tokens(ids=ids, real=real)


def train_step(model: Model, batch: Batch, draw: int = 0) -> StepTensors:
    """Returns logits of the real tokens and, if gradients are enabled, the gradients of a loss of
    them, with random texts and targets of seed `draw`.
    """
    model.zero_grad()
    seeded = torch.Generator().manual_seed(7 + draw)
    target = torch.randint(VOCAB, batch[0].ids.shape, generator=seeded)
    tokens, source = (x and x._replace(ids=(x.ids + draw) % VOCAB) if draw else x for x in batch)
    hidden, report = model.hidden(tokens, source=source, multi_token=True)
    real = torch.ones_like(tokens.ids, dtype=torch.bool) if tokens.real is None else tokens.real
    logits = model.head(hidden)[:, real]  # (n, b, t, vocab) -> (n, tokens, vocab)
    if not torch.is_grad_enabled():
        return {"logits": logits}
    loss = F.cross_entropy(logits.flatten(0, 1), target[real].repeat(len(logits)))
    (loss + report["loss"] if "loss" in report else loss).backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": logits.detach()} | grads


@law("kernels")
def kernels(composition: Composition) -> None:
    """Every kernel that accepts a request equals `reference`, outputs and gradients, in fp32.

    Fails: kernel 'sdpa' in fp32, plain: logits is off by 3.4e-02, reference by 2.1e-07, ...
    Fix: Pass q, k, v, scale and scores to `self.kernel`; a kernel may refuse in `unsupported`.
    """
    others, untrainable = other_kernels(composition), untrainable_kernel(composition)
    if not others and not untrainable:
        raise NotApplicable("only `reference` can compute it")
    for batch_name, batch in batches(composition):
        for names, trains in ((others, True), (untrainable, False)):
            with torch.set_grad_enabled(trains):
                steps = _step_function(composition, f"{batch_name} {trains}", batch)
                for name in names:
                    bound = Bound(name, torch.float32, 3, 2e-5)
                    _check_bound(composition, f"in fp32, {batch_name}", steps, bound)


@law("kernels in bf16", prerequisites=("kernels",))
def kernels_in_bf16(composition: Composition) -> None:
    """In bf16 such a kernel is about as close to the exact numbers as `reference`.

    Fails: kernel 'mine' in bf16: logits is off by 9.1e-01, reference by 1.2e-02, ...
    Fix: Accumulate sums and softmax in fp32.
    """
    names = other_kernels(composition)
    if not names:
        raise NotApplicable("only `reference` can compute it")
    batch_name, batch = next(batches(composition))
    steps = _step_function(composition, f"{batch_name} True", batch)
    for name in names:
        _check_bound(composition, "in bf16", steps, Bound(name, torch.bfloat16, 10, 2e-2))


def _check_bound(composition: Composition, where: str, steps: ComputeStep, bound: Bound) -> None:
    """Raises LawBroken if the error of a kernel is above its bound."""
    for name, error in errors_above_bound(steps, bound).items():
        raise composition.broken(f"kernel '{bound.kernel}' {where}: {name} is {error}")


def other_kernels(composition: Composition) -> list[str]:
    """Returns the kernels except `reference` that can compute the composition."""

    def accepts(name: str) -> bool:
        return not faults({**composition.config, "kernel": tiny_node("kernel", name)})

    names = [name for name in KERNELS if name not in ("auto", "reference")]
    return composition.compute_once("other kernels", lambda: [*filter(accepts, names)])


def untrainable_kernel(composition: Composition) -> list[str]:
    """Returns the kernel of the composition if it computes no gradients on a CPU: only its outputs
    are compared.
    """
    name = composition.config["kernel"]["name"]
    return [] if name == "auto" or cannot_train_on(name, "cpu") is None else [name]


Models = Callable[..., Model]  # kernel, dtype, rounding, seed of the weights -> the model


def _models(composition: Composition) -> Models:
    """Returns a cached function that builds models with a kernel and rounded weights."""

    @cache
    def model(kernel: str, dtype: torch.dtype, rounding: int, weights: int) -> Model:
        built = composition.model(torch.float64, weights, kernel=tiny_node("kernel", kernel))
        if rounding:
            _perturb_weights(built, torch.finfo(dtype).eps / 2, rounding)
        return built.to(dtype)

    return composition.compute_once("models", lambda: model)


def _step_function(composition: Composition, cache_key: str, batch: Batch) -> ComputeStep:
    """Returns a cached function (kernel, dtype, draw, rounding, weights) -> logits and gradients of
    one training step on a batch, with the models of `_models`.
    """
    model = _models(composition)

    @cache
    def of(
        kernel: str, dtype: torch.dtype, draw: int, rounding: int = 0, weights: int = 1
    ) -> StepTensors:
        return train_step(model(kernel, dtype, rounding, weights), batch, draw)

    return composition.compute_once(f"steps, {cache_key}", lambda: of)


@torch.no_grad()
def _perturb_weights(model: Model, size: float, seed: int) -> None:
    """Multiplies every weight by a random factor from 1 - size to 1 + size."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        share = torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.mul_(1 + size * (2 * share - 1))


@law("precision")
@torch.no_grad()
def precision(composition: Composition) -> None:
    """The results in float32 and float64 agree.

    Fails: float32 differs from float64: the gap is 2.10e-03, allowed is 1.00e-04.
    Fix: Cast to no fixed dtype, such as by .float(), without casting back to that of the input.
    """
    double, single = (
        composition.all_logits(model)
        for model in (composition.shared_model, composition.model(torch.float32))
    )
    if (double.dtype, single.dtype) != (torch.float64, torch.float32):
        raise composition.broken(
            f"logits are {double.dtype} in float64 and {single.dtype} in float32"
        )
    composition.assert_close(single.double(), double, "float32 differs from float64", 1e-4)


@law("gradients")
def gradients(composition: Composition) -> None:
    """Every parameter is in the graph of every step; gradients are finite, and not zero unless a
    component states `zero_gradient=True` of the parameter. No buffer is written in forward.

    Parameters with a zero gradient are checked again with larger and with smaller weights, because
    an activation with a kink may be constant or linear on all tokens, so that a bias before it, or
    parameters after it, have no effect. These models also lack two causes of zero gradients in one
    step: stochastic depth that skips a sublayer in every row, and masks that leave a query one key,
    or a sparse score only distant ones.

    Fails: decoder.0.ffn.spare is not in the step's graph (plain).
    Fix: Use every parameter in every step, or state that it has `zero_gradient=True`.
    """
    model = composition.trainable_model().train()
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    exempt, recheck_model = set(without_gradient(model)), cache(partial(without_skips, composition))
    for batch_name, batch in batches(composition):
        check = partial(_zero_gradients, composition, batch, batch_name, exempt)
        zero = check(model)
        for seed in WEIGHTS if zero else ():
            again = check(recheck_model(seed), strict=False)
            zero = {name: size for name, size in zero.items() if name in again}
        for name, size in zero.items():
            raise composition.broken(f"the gradient of {name} is zero ({batch_name}: {size})")
    for name, buffer in model.named_buffers():
        if not torch.equal(buffer, buffers[name]):
            raise composition.broken(
                f"the buffer {name} is written in forward; write it in `after_step`"
            )


def _zero_gradients(
    composition: Composition,
    batch: Batch,
    batch_name: str,
    exempt: set[str],
    model: Model,
    strict: bool = True,
) -> dict[str, str]:
    """Returns the parameters, except the exempt ones, whose gradient is zero, with its size. Raises
    LawBroken for a missing or non-finite gradient; without `strict`, a non-finite one, which larger
    weights may cause, counts as zero.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # dropout and stochastic depth are the same each time
        grads, zero = train_step(model, batch), {}
    largest = largest_gradient(grads)
    for name, _ in model.named_parameters():
        if name not in grads:
            raise composition.broken(f"{name} is not in the step's graph ({batch_name})")
        size = grads[name].abs().max().item()
        finite = bool(grads[name].isfinite().all())
        if strict and not finite:
            raise composition.broken(f"the gradient of {name} is not finite ({batch_name})")
        if not (finite and size > 1e-13 * largest) and name not in exempt:
            zero[name] = f"{size:.1e} next to {largest:.1e}"
    return zero


def without_skips(composition: Composition, weight_seed: int) -> Model:
    """Returns the model in training mode with random weights of this seed, without stochastic
    depth, and with the previous token visible under masks that leave no choice: one key, or, for a
    sparse score, keys so far apart that the position's bias decides.
    """
    model = composition.trainable_model(weight_seed)
    masks = {mask for stack in _stacks(model) for mask in _masks_without_choice(stack)}
    if masks:
        model = composition.trainable_model(weight_seed, "reference")
    model.train()
    for stack in _stacks(model):
        stack.attention_groups = [
            group._replace(mask=group.mask | WINDOW) if group.mask in masks else group
            for group in stack.attention_groups
        ]
        stack.extra.eval()  # no random choices of extras
        for block in stack.named_blocks.values():
            block.train()
    return model


def _masks_without_choice(stack: Any) -> Iterator[Mask]:
    """Yields the masks of a stack with which no query sees two tokens and, for a sparse score,
    those with which some head never sees the previous token.
    """
    for block in stack.named_blocks.values():
        for name, attention in block.attentions().items():
            mask = stack.attention_groups[block.attention_group_of[name]].mask
            visible = visible_keys(mask)
            previous = visible.diagonal(-1, -2, -1).any(-1).all()
            if visible.sum(-1).max() < 2 or (not previous and _is_sparse(attention)):
                yield mask


def _is_sparse(attention: Any) -> bool:
    """Whether its score has visible keys with a weight of exactly 0, which have no gradient."""
    score = next((module for module in attention.modules() if isinstance(module, Score)), None)
    if score is None:
        return False
    draw = torch.Generator().manual_seed(3)
    shape = 1, attention.q.out_features // attention.head_dim, 4, KEYS
    scores, factors = 2 * torch.randn((2, *shape), generator=draw, dtype=torch.float64)
    with torch.enable_grad():
        scores.requires_grad_()
        (grad,) = torch.autograd.grad((score(scores, None) * factors).sum(), scores)
    return bool((grad == 0).any())


def _stacks(model: Model) -> list[Any]:
    return [model.get_submodule(name) for name in model.names]


def without_gradient(model: nn.Module) -> Iterator[str]:
    """Yields the parameters whose gradient may be zero by their component's mathematics."""
    yield from (name for name, info in parameter_table(model).items() if info.zero_gradient)
