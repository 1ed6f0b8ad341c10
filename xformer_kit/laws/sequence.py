"""Laws of sequences: which tokens may influence which, and which changes have no effect."""

from typing import Any

import torch
from torch import Tensor

from xformer_kit.laws.composition import (
    BATCH,
    LENGTH,
    SOURCE,
    VOCAB,
    Composition,
    NotApplicable,
    faults,
)
from xformer_kit.laws.registry import law
from xformer_kit.model.model import Model
from xformer_kit.model.tokens import Tokens

ROWS = (LENGTH, 7, 10)  # real tokens of each row of a padded batch
SOURCE_ROWS = (4, SOURCE, 8)  # and of each row of its source
CUT = 6  # first token of the second document
SOURCE_CUT = 4  # and of its source


def influence(case: Composition, model: Model, ids: Tensor, at: int, **fields: Any) -> Tensor:
    """Returns the size of the gradient of the output at slot `at` for each token of one row,
    (length,).
    """
    model.zero_grad()
    out = case.read(model, ids, further=True, **fields)[:, 0, at]
    out.square().sum().backward()
    grad = model.embed.weight.grad  # all ids differ: each row of the embedding is one token
    return torch.zeros(ids.shape[1]) if grad is None else grad[ids[0]].abs().amax(-1)


def changed(ids: Tensor, at: int | slice) -> Tensor:
    new = ids.clone()
    new[:, at] = (new[:, at] + 1) % VOCAB
    return new


@law("causality")
def causality(case: Composition) -> None:
    """Later tokens do not influence earlier outputs, by perturbation and by gradient."""
    case.needs_past()
    model = case.read_only
    with torch.no_grad():
        before = case.predicted(model, case.ids)
        for at in (1, LENGTH // 2, LENGTH - 1):
            after = case.predicted(model, changed(case.ids, at))
            case.same(after[:, :at], before[:, :at], f"token {at} changes what comes before it")
    learning = case.with_gradients
    for at in (0, LENGTH // 2):
        later = influence(case, learning, case.ids[:1], at)[at + 1 :]
        if later.max() != 0:
            worst = at + 1 + int(later.argmax())
            raise case.broken(
                f"the output at {at} has a gradient of {later.max():.2e} to token {worst}"
            )


@law("documents")
def documents(case: Composition) -> None:
    """Documents in one row do not influence each other, and each equals the document in a row of
    its own; the same for the documents of a source.
    """
    model, document = case.read_only, packed(LENGTH, CUT)
    sources: list[Tokens | None] = [None] * 3  # of both documents, of the first, of the second
    if case.source is not None:
        ids = case.source
        sources = [Tokens(ids=ids, document=packed(SOURCE, SOURCE_CUT))]
        sources += [Tokens(ids=ids[:, :SOURCE_CUT]), Tokens(ids=ids[:, SOURCE_CUT:])]
    with torch.no_grad():
        both = case.predicted(model, case.ids, sources[0], document=document)
        other = case.predicted(
            model, changed(case.ids, slice(0, CUT)), sources[0], document=document
        )
        case.same(other[:, CUT:], both[:, CUT:], "the first document changes the second")
        for which, component, source in (
            ("first", slice(0, CUT), sources[1]),
            ("second", slice(CUT, None), sources[2]),
        ):
            alone = case.predicted(model, case.ids[:, component], source)
            case.same(
                both[:, component], alone, f"the {which} document differs from the document alone"
            )
    leak = influence(case, case.with_gradients, case.ids[:1], LENGTH - 1, document=document[:1])[
        :CUT
    ].max()
    if leak != 0:
        raise case.broken(f"the second document has a gradient of {leak:.2e} to the first")


def packed(length: int, cut: int) -> Tensor:
    """Returns the document of each token, 0 before `cut` and 1 from there, (batch, length)."""
    return torch.arange(length).ge(cut).long().expand(BATCH, -1)


def padded(ids: Tensor, left: bool, rows: tuple[int, ...] = ROWS) -> tuple[Tensor, Tensor]:
    """Returns a batch with `rows` real tokens per row, and `real`; padding has arbitrary ids."""
    length = ids.shape[1]
    real = torch.arange(length) < torch.tensor(rows)[:, None]
    if not left:
        return ids, real
    shifted = [row.roll(length - n) for row, n in zip(ids, rows, strict=True)]
    return torch.stack(shifted), real.flip(-1)


@law("padding")
def padding(case: Composition) -> None:
    """A padded batch equals its unpadded rows, whether the padding is on the left or on the
    right.
    """
    model = case.read_only
    with torch.no_grad():
        alone = [
            case.predicted(model, row[None, :n])[0] for row, n in zip(case.ids, ROWS, strict=True)
        ]
        for left, side in ((False, "right"), (True, "left")):
            ids, real = padded(case.ids, left)
            logits = case.predicted(model, ids, real=real)
            if not logits.isfinite().all():
                raise case.broken(f"padding on the {side} makes logits that are not finite")
            for row in range(BATCH):
                what = (
                    f"a row of {ROWS[row]} tokens, padded on the {side} to {LENGTH}, differs from"
                    " the row alone"
                )
                case.same(logits[row, real[row]], alone[row], what)


@law("batch")
def batch(case: Composition) -> None:
    """Permuting a batch permutes the output, and a row does not depend on other rows."""
    model, order = case.read_only, torch.tensor([2, 0, 1])
    source = None if case.source is None else Tokens(ids=case.source)

    def of(rows: Tensor) -> Tensor:
        return case.predicted(model, case.ids[rows], source and source.select(rows))

    with torch.no_grad():
        logits = of(torch.arange(BATCH))
        case.same(of(order), logits[order], "permuting the rows does more than permute the output")
        case.same(of(torch.tensor([1])), logits[1:2], "a row alone differs from the row in a batch")


@law("shift")
def shift(case: Composition) -> None:
    """A shift of all positions does not change the output, also of a source."""
    if not case.looks:
        raise NotApplicable("there is no attention")
    model = case.read_only

    def of(by: int) -> Tensor:
        source = None
        if case.source is not None:
            source = Tokens(ids=case.source, position=torch.arange(SOURCE)[None] + by)
        return case.predicted(model, case.ids, source, position=torch.arange(LENGTH)[None] + by)

    with torch.no_grad():
        case.same(of(16), of(0), "a shift by 16 matters", 1e-4)


@law("symmetry")
@torch.no_grad()
def symmetry(case: Composition) -> None:
    """Without position and with a full mask, the model commutes with permutations of the tokens."""
    case.needs_no_order(case.stacks[-1])
    model, order = (
        case.read_only,
        torch.randperm(LENGTH, generator=torch.Generator().manual_seed(3)),
    )
    got = case.predicted(model, case.ids[:, order])
    expected = case.predicted(model, case.ids)[:, order]
    case.same(got, expected, "permuting the tokens does more than permute the output")


@law("nothing")
def nothing(case: Composition) -> None:
    """The output of a query without visible keys is zero, not NaN: if all keys are masked, no token
    influences another, unless an extra mixes tokens, and gradients are finite.
    """
    if not case.own:
        raise NotApplicable("no attention")
    mask = dict(case.config["mask"])
    nobody = {"name": "all_of", "of": [mask, {"name": "not", "of": mask}]}
    hidden_from_all = {**case.config, "mask": nobody}
    # Faults of the mask itself: that it, or one inside it, hides every token.
    if refused := [
        fault for fault in faults(hidden_from_all) if fault.path.partition(".")[0] != "mask"
    ]:
        raise NotApplicable(f"a mask that hides everything is refused: {refused[0].rule}")
    looks = Composition(hidden_from_all, case.law).own
    if any(context.options["mask"] != nobody for context in looks):
        raise NotApplicable("an attention has a mask of its own")
    model = case.model(mask=nobody)
    for name, module in model.named_modules():
        if name.startswith(case.stacks[-1]) and name.endswith(("attn.o", "attn_2.o")):
            module.register_forward_pre_hook(lambda _, args: zeros.append(args[0].abs().max()))
    zeros: list[Tensor] = []
    logits = case.predicted(model, case.ids)
    if not logits.isfinite().all():
        raise case.broken("tokens that see nothing have logits that are not finite")
    if zeros and max(zeros) != 0:
        raise case.broken(f"a row with nothing to see is {max(zeros):.2e}, not zero")
    if not case.mixes:
        other = case.predicted(model, changed(case.ids, 0))
        case.same(other[:, 1:], logits[:, 1:], "a token matters to others that see nothing")
    logits.square().mean().backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            raise case.broken(f"the gradient of {name} is not finite where nothing is seen")
