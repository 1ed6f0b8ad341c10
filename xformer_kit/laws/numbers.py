"""Laws of numbers: kernels agree, precisions agree, every parameter has a gradient."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xformer_kit.attention import Score
from xformer_kit.kernel import KERNELS, cannot_train_on
from xformer_kit.laws.composition import (
    LENGTH,
    SOURCE,
    VOCAB,
    Composition,
    NotApplicable,
    faults,
    sized,
)
from xformer_kit.laws.masks import picture
from xformer_kit.laws.registry import law
from xformer_kit.laws.sequence import CUT, ROWS, SOURCE_CUT, SOURCE_ROWS, packed, padded
from xformer_kit.mask import MASKS, Mask
from xformer_kit.model.model import Model
from xformer_kit.model.tokens import Tokens

PAIR = MASKS.create(
    {"name": "sliding_window", "window": 2}
)  # each token sees itself and the one before it
DRAWS = 1, 5, 20  # numbers of random texts and targets: more if fewer are not conclusive
ROUNDINGS = 64  # random roundings of the weights, if the draws are not conclusive
WEIGHTS = LARGER, SMALLER = 2, 3  # further seeds of the weights
KEYS = 64  # length of a row of scores in the test of sparsity
Step = dict[str, Tensor]  # "logits", and the gradient of every parameter by its name
Request = tuple[Tokens, Tokens | None]  # tokens of the model, and the source of an encoder-decoder


def requests(case: Composition) -> Iterator[tuple[str, Request]]:
    """Yields a plain batch and, if the components keep these laws, a batch padded on the left and
    on the right, and a batch of several documents per row.
    """
    ids, source = case.ids, case.source
    yield "plain", (Tokens(ids=ids), None if source is None else Tokens(ids=source))
    if "padding" not in case.breaks:
        other = None if source is None else _padded(source, SOURCE_ROWS)
        yield "padded", (_padded(ids), other)
    if "documents" not in case.breaks:
        other = None if source is None else Tokens(ids=source, document=packed(SOURCE, SOURCE_CUT))
        yield "packed", (Tokens(ids=ids, document=packed(LENGTH, CUT)), other)


def _padded(ids: Tensor, rows: tuple[int, ...] = ROWS) -> Tokens:
    """Returns a batch padded on the left and one padded on the right, concatenated."""
    (left, left_real), (right, right_real) = (padded(ids, left, rows) for left in (True, False))
    return Tokens(ids=torch.cat([left, right]), real=torch.cat([left_real, right_real]))


def step(model: Model, request: Request, draw: int = 0) -> Step:
    """Returns logits of the real tokens and, if gradients are enabled, the gradients of a loss of
    them, with random texts and targets of seed `draw`.
    """
    model.zero_grad()
    seeded = torch.Generator().manual_seed(7 + draw)
    target = torch.randint(VOCAB, request[0].ids.shape, generator=seeded)
    tokens, source = (x and x._replace(ids=(x.ids + draw) % VOCAB) if draw else x for x in request)
    hidden, report = model.hidden(tokens, source=source, further=True)
    real = torch.ones_like(tokens.ids, dtype=torch.bool) if tokens.real is None else tokens.real
    logits = model.head(hidden)[:, real]  # (n, b, t, vocab) -> (n, tokens, vocab)
    if not torch.is_grad_enabled():
        return {"logits": logits}
    loss = F.cross_entropy(logits.flatten(0, 1), target[real].repeat(len(logits)))
    (loss + report["loss"] if "loss" in report else loss).backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": logits.detach()} | grads


@law("kernels")
def kernels(case: Composition) -> None:
    """Every kernel that accepts a request equals `reference`, outputs and gradients, in fp32."""
    able, chosen = others(case), unlearned(case)
    if not able and not chosen:
        raise NotApplicable("only `reference` can compute it")
    for what, request in requests(case):
        for names, learns in ((able, True), (chosen, False)):
            with torch.set_grad_enabled(learns):
                of = _steps(case, f"{what}{'' if learns else ', outputs'}", request)
                for name in names:
                    _bounded(
                        case,
                        f"kernel '{name}' in fp32, {what}",
                        of,
                        Rule(name, torch.float32, 3, 2e-5),
                    )


@law("kernels in bf16", under=("kernels",))
def kernels_in_bf16(case: Composition) -> None:
    """In bf16 such a kernel is about as close to the exact numbers as `reference`."""
    able = others(case)
    if not able:
        raise NotApplicable("only `reference` can compute it")
    of = _steps(case, *next(requests(case)))
    for name in able:
        _bounded(case, f"kernel '{name}' in bf16", of, Rule(name, torch.bfloat16, 10, 2e-2))


def others(case: Composition) -> list[str]:
    """Returns the other kernels that can compute the composition."""
    names = [name for name in KERNELS if name not in ("auto", "reference")]
    able = (name for name in names if not faults({**case.config, "kernel": sized("kernel", name)}))
    return case.shared("kernels other than reference", lambda: [*able])


def unlearned(case: Composition) -> list[str]:
    """Returns the kernel of the composition if it computes no gradients on a CPU: only its outputs
    are compared.
    """
    name = case.config["kernel"]["name"]
    return [] if name == "auto" or cannot_train_on(name, "cpu") is None else [name]


Built = Callable[..., Model]  # kernel, precision, rounding, weights -> the model
Steps = Callable[..., Step]  # kernel, precision, draw, rounding, weights -> its step


class Rule(NamedTuple):
    """Bound of the error of a kernel: `times` the error of `reference`, plus `slack` times the
    largest exact value.
    """

    kernel: str
    dtype: torch.dtype
    times: float
    slack: float


def _built(case: Composition) -> Built:
    @cache
    def made(kernel: str, dtype: torch.dtype, rounding: int, weights: int) -> Model:
        model = case.model(torch.float64, weights, kernel=sized("kernel", kernel))
        if rounding:
            _moved(model, torch.finfo(dtype).eps / 2, rounding)
        return model.to(dtype)

    return case.shared("built", lambda: made)


def _steps(case: Composition, what: str, request: Request) -> Steps:
    built = _built(case)

    @cache
    def of(kernel: str, dtype: torch.dtype, draw: int, rounding: int = 0, weights: int = 1) -> Step:
        return step(built(kernel, dtype, rounding, weights), request, draw)

    return case.shared(f"steps, {what}", lambda: of)


@torch.no_grad()
def _moved(model: Model, most: float, seed: int) -> None:
    """Multiplies every weight by a random factor from 1 - most to 1 + most."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        share = torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.mul_(1 + most * (2 * share - 1))


def _bounded(case: Composition, what: str, of: Steps, rule: Rule) -> None:
    """Raises LawBroken if the error of a kernel is above the bound of its rule. In bf16 both
    kernels round to three digits, at different operations.

    Gradients above the bound are computed again with smaller weights: with large ones a softmax has
    a single key, and the mean of its gradients, which fast kernels compute from their outputs (Dao
    et al., 2022, arXiv:2205.14135, appendix B.2), cancels against a term of its size; in
    `reference` it cancels exactly.
    """
    wrong = dict(_beyond(of, rule, of("reference", torch.float64, 0)))
    if wrong and "logits" not in wrong:
        again = dict(_beyond(partial(of, weights=SMALLER), rule, wrong))
        wrong = {name: said for name, said in wrong.items() if name in again}
    for name, said in wrong.items():
        raise case.broken(f"{what}: {name} is {said}")


def _beyond(of: Steps, rule: Rule, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields the outputs and gradients whose error is above the bound, with the error. If a
    gradient is zero, as for a query that sees one key, and `reference` is exact, the largest exact
    value is that of the whole step: terms of its size cancel in other kernels.

    The error of one draw is random: that of a sum over all tokens, such as the gradient of a single
    number, may be almost zero, and that of an activation with a kink may be large if it rounds to
    the other side. If a kernel is above the bound, both kernels are compared on more texts and
    targets, by their largest errors. If it still is, the draw with the largest error may be next to
    a kink: then `reference` has an error as large with weights that are rounded differently.
    """
    largest = _largest(of("reference", torch.float64, 0))
    for name in names:
        for draws in DRAWS:
            worst = [_off(of, rule, draw, name) for draw in range(draws)]
            own, others, size = (max(values) for values in zip(*worst, strict=True))
            floor = rule.slack * (largest if others == size == 0 else max(1e-3, size))
            if own <= rule.times * others + floor:
                break
        else:
            at = max(range(draws), key=lambda draw: worst[draw][0])
            for rounding in range(1, ROUNDINGS + 1):
                off = _off(of, rule._replace(kernel="reference"), at, name, rounding)[0]
                others = max(others, off if off < inf else 0)
                if own <= rule.times * others + floor:
                    break
            else:
                allowed = f"allowed is {rule.times * others + floor:.1e}"
                yield name, f"off by {own:.1e}, reference by {others:.1e}, {allowed}"


def _off(
    of: Steps, rule: Rule, draw: int, name: str, rounding: int = 0
) -> tuple[float, float, float]:
    """Returns the errors of the kernel and of `reference`, and the largest exact value. NaN or a
    missing gradient is an infinite error of the kernel, and a negative one of `reference`.
    """
    exact = of("reference", torch.float64, draw)[name]
    found = of(rule.kernel, rule.dtype, draw, rounding), of("reference", rule.dtype, draw)
    own, others = ((one.get(name, exact * torch.nan).double() - exact).abs().max() for one in found)
    return (
        own.nan_to_num(inf, inf).item(),
        others.nan_to_num(-inf, inf).item(),
        exact.abs().max().item(),
    )


@law("precision")
@torch.no_grad()
def precision(case: Composition) -> None:
    """The results in float32 and float64 agree."""
    double = case.predicted(case.read_only, case.ids)
    single = case.predicted(case.model(torch.float32), case.ids)
    if (double.dtype, single.dtype) != (torch.float64, torch.float32):
        raise case.broken(f"logits are {double.dtype} in float64 and {single.dtype} in float32")
    case.same(single.double(), double, "float32 differs from float64", 1e-4)


@law("gradients")
def gradients(case: Composition) -> None:
    """Every parameter is in the graph of every step; gradients are finite, and not zero unless a
    component names the parameter in `no_gradient`. No buffer is written in forward.

    Parameters with a zero gradient are checked again with larger and with smaller weights, because
    an activation with a kink may be constant or linear on all tokens, so that a bias before it, or
    parameters after it, have no effect. These models also lack two causes of zero gradients in one
    step: stochastic depth that skips a sublayer in every row, and masks that leave a query one key,
    or a sparse score only distant ones.
    """
    model = case.learning().train()
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    null, free = set(named_null(model)), cache(partial(freed, case))
    for what, request in requests(case):
        zero = _zero(case, model, request, what, null)
        for draw in WEIGHTS if zero else ():
            again = _zero(case, free(draw), request, what, null, strict=False)
            zero = {name: size for name, size in zero.items() if name in again}
        for name, size in zero.items():
            raise case.broken(f"the gradient of {name} is zero ({what}: {size})")
    for name, buffer in model.named_buffers():
        if not torch.equal(buffer, buffers[name]):
            raise case.broken(f"the buffer {name} is written in forward; write it in `after_step`")


def _zero(
    case: Composition,
    model: Model,
    request: Request,
    what: str,
    null: set[str],
    strict: bool = True,
) -> dict[str, str]:
    """Returns the parameters, except those in `null`, whose gradient is zero, with its size. Raises
    LawBroken for a missing or non-finite gradient; without `strict`, a non-finite one, which larger
    weights may cause, counts as zero.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # dropout and stochastic depth are the same each time
        grads, found = step(model, request), {}
    largest = _largest(grads)
    for name, _ in model.named_parameters():
        if name not in grads:
            raise case.broken(f"{name} is not in the step's graph ({what})")
        size = grads[name].abs().max().item()
        finite = bool(grads[name].isfinite().all())
        if strict and not finite:
            raise case.broken(f"the gradient of {name} is not finite ({what})")
        if not (finite and size > 1e-13 * largest) and name not in null:
            found[name] = f"{size:.1e} next to {largest:.1e}"
    return found


def _largest(grads: Step) -> float:
    sizes = (grad.abs().max().item() for name, grad in grads.items() if name != "logits")
    return max(sizes, default=0.0)


def freed(case: Composition, draw: int) -> Model:
    """Returns the model with random weights of seed `draw`, without stochastic depth, and with the
    previous token visible under masks that leave no choice: one key, or, for a sparse score, keys
    so far apart that the position's bias decides.
    """
    model = case.learning(draw)
    lone = {mask for stack in _stacks(model) for mask in _lone(stack)}
    if lone:
        model = case.learning(draw, "reference")
    for stack in _stacks(model):
        stack.groups = [
            look._replace(mask=look.mask | PAIR) if look.mask in lone else look
            for look in stack.groups
        ]
    model.train()
    for stack in _stacks(model):
        stack.extra.eval()  # no random choices of extras
        for block in stack.named_blocks.values():
            block.train()
    return model


def _lone(stack: Any) -> Iterator[Mask]:
    """Yields the masks of a stack with which no query sees two tokens and, for a sparse score,
    those with which some head never sees the previous token.
    """
    for block in stack.named_blocks.values():
        for name, attention in block.attentions().items():
            seen = picture(mask := stack.groups[block.group_of[name]].mask)
            before = seen.diagonal(-1, -2, -1).any(-1).all()
            if seen.sum(-1).max() < 2 or (not before and _sparse(attention)):
                yield mask


def _sparse(attention: Any) -> bool:
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


def named_null(model: nn.Module) -> Iterator[str]:
    """Yields the parameters whose gradient is always zero by their component's mathematics."""
    for path, module in model.named_modules():
        for name in getattr(module, "no_gradient", ()):
            yield f"{path}.{name}"
