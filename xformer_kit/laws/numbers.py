"""Laws about numbers: kernels agree, precisions agree, every parameter learns."""

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

PAIR = MASKS.create({"name": "sliding_window", "window": 2})  # a token and the one before it
DRAWS = 1, 5, 20  # of texts and targets: more of them where fewer leave a doubt
ROUNDINGS = 64  # of the weights, where the draws leave one
WEIGHTS = LARGER, SMALLER = 2, 3  # draws of the weights beside the first
KEYS = 64  # of a row of scores that shows whether a score is sparse
Step = dict[str, Tensor]  # "logits", and the gradient of every parameter by its name
Request = tuple[Tokens, Tokens | None]  # what the model reads, and the source of two stacks


def requests(case: Composition) -> Iterator[tuple[str, Request]]:
    """A batch as it is, and as far as the components keep those laws, padded, on the left and on
    the right in turn, and packed.
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
    """Two batches in one, of which one is padded on the left, the other on the right."""
    (left, left_real), (right, right_real) = (padded(ids, left, rows) for left in (True, False))
    return Tokens(ids=torch.cat([left, right]), real=torch.cat([left_real, right_real]))


def step(model: Model, request: Request, draw: int = 0) -> Step:
    """Logits of the real tokens, and the gradients of a loss over them, with the texts and the
    targets of that draw; without them where torch computes none.
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
    """In bf16 such a kernel lies about as near to the exact numbers as `reference` does."""
    able = others(case)
    if not able:
        raise NotApplicable("only `reference` can compute it")
    of = _steps(case, *next(requests(case)))
    for name in able:
        _bounded(case, f"kernel '{name}' in bf16", of, Rule(name, torch.bfloat16, 10, 2e-2))


def others(case: Composition) -> list[str]:
    """Kernels beside `reference` that can compute the case."""
    names = [name for name in KERNELS if name not in ("auto", "reference")]
    able = (name for name in names if not faults({**case.config, "kernel": sized("kernel", name)}))
    return case.shared("kernels beside reference", lambda: [*able])


def unlearned(case: Composition) -> list[str]:
    """The kernel that the case names, where it computes no gradients on a CPU: outputs are all that
    there is of it here.
    """
    name = case.config["kernel"]["name"]
    return [] if name == "auto" or cannot_train_on(name, "cpu") is None else [name]


Built = Callable[..., Model]  # kernel, precision, rounding, weights -> the model
Steps = Callable[..., Step]  # kernel, precision, draw, rounding, weights -> what comes of it


class Rule(NamedTuple):
    """A kernel may be off by so many times what `reference` is off, and by `slack` of the largest
    exact value.
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
    """Move every weight by at most that share of it."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        share = torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype)
        parameter.mul_(1 + most * (2 * share - 1))


def _bounded(case: Composition, what: str, of: Steps, rule: Rule) -> None:
    """Raises LawBroken where a kernel is further off than its rule allows. In bf16 both round three
    digits, each at its own places.

    Gradients are looked at again with smaller weights: large ones drive a softmax to a single key,
    where the mean of its gradients, which fast kernels take from their outputs (Dao et al., 2022,
    arXiv:2205.14135, appendix B.2), cancels against a term of its size, and that of `reference`
    exactly.
    """
    wrong = dict(_beyond(of, rule, of("reference", torch.float64, 0)))
    if wrong and "logits" not in wrong:
        again = dict(_beyond(partial(of, weights=SMALLER), rule, wrong))
        wrong = {name: said for name, said in wrong.items() if name in again}
    for name, said in wrong.items():
        raise case.broken(f"{what}: {name} is {said}")


def _beyond(of: Steps, rule: Rule, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Of these outputs and gradients those that are further off than the rule allows, and how far.
    Where a gradient is zero, as it is where a query sees one key, and `reference` does not even
    round, the largest exact value is that of the step: terms of its size cancel in other kernels.

    How far one draw is off is chance: a sum over all tokens, such as the gradient of a single
    number, now and then by nearly nothing, and an activation with a kink by much where it rounds to
    the other side. Where the kernel seems worse, both are tried with other texts and targets, and
    the worst of each counts. Where it still does, the draw in which it is off most may be next to a
    kink: then `reference` is off as much with weights that are rounded otherwise.
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
    """How far the kernel and `reference` are off, and the largest exact value. Not a number, or no
    gradient, is endless in the kernel, and allows nothing in `reference`.
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
    """The model runs in float64 as in float32."""
    double = case.predicted(case.read_only, case.ids)
    single = case.predicted(case.model(torch.float32), case.ids)
    if (double.dtype, single.dtype) != (torch.float64, torch.float32):
        raise case.broken(f"logits are {double.dtype} in float64 and {single.dtype} in float32")
    case.same(single.double(), double, "float32 differs from float64", 1e-4)


@law("gradients")
def gradients(case: Composition) -> None:
    """Every parameter is in every step's graph; gradients are finite, and not zero unless a
    component names the parameter in `no_gradient`. No buffer is written in forward.

    What has none is looked at again in two other draws of the weights, a larger and a smaller one,
    for an activation with a kink may be flat, or straight, on every token of one, so that a bias
    before it does nothing, or nothing that is behind it; and without the two things that leave a
    parameter without a gradient in one step: stochastic depth that skips a sublayer in every row,
    and masks that leave a query one key, or a sparse score far ones alone.
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
    """Parameters, but for those in `null`, whose gradient is zero, and how small it is. Raises
    LawBroken for one that is missing or not finite; where that is not `strict`, one that is not
    finite, as larger weights may make it, counts as zero.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # of dropout and stochastic depth: a verdict is the same each time
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
            found[name] = f"{size:.1e} beside {largest:.1e}"
    return found


def _largest(grads: Step) -> float:
    sizes = (grad.abs().max().item() for name, grad in grads.items() if name != "logits")
    return max(sizes, default=0.0)


def freed(case: Composition, draw: int) -> Model:
    """The model with the weights of that draw, with all sublayers kept, and with the token before
    beside what leaves nothing to
    choose: one key, or, for a sparse score, keys so far apart that a position makes the nearest one
    larger by more than it takes.
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
        stack.extra.eval()  # what extras choose at random in training
        for block in stack.named_blocks.values():
            block.train()
    return model


def _lone(stack: Any) -> Iterator[Mask]:
    """Masks of a stack by which no query sees two tokens, and before a sparse score those by which
    some head never sees the token before.
    """
    for block in stack.named_blocks.values():
        for name, attention in block.attentions().items():
            seen = picture(mask := stack.groups[block.group_of[name]].mask)
            before = seen.diagonal(-1, -2, -1).any(-1).all()
            if seen.sum(-1).max() < 2 or (not before and _sparse(attention)):
                yield mask


def _sparse(attention: Any) -> bool:
    """Whether its score gives keys that are seen a weight of exactly 0, and with it no gradient."""
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
    """Parameters whose gradient is zero by the mathematics of their component."""
    for path, module in model.named_modules():
        for name in getattr(module, "no_gradient", ()):
            yield f"{path}.{name}"
