"""A window is computed by blocks without a table of all pairs, and equals the reference."""

import pytest
import torch
from contexts import BOTH, WINDOW, context, inputs, tokens
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from xformer_kit.kernel import KERNELS
from xformer_kit.mask import Causal, Full
from xformer_kit.tensors.tokens import AttentionContext


def computed(kernel, seen: AttentionContext, given: list[torch.Tensor]) -> list[torch.Tensor]:
    """The output of queries that are no padding, and the gradients of a sum over it."""
    out = kernel(*given, seen, 0.4)
    assert out.isfinite().all()
    real = seen.query.real
    out = out if real is None else out * real[:, None, :, None]
    return [out, *torch.autograd.grad((out * torch.arange(out.shape[-1])).sum(), given)]


SIGHTS = {
    "plain": {},
    "padded at the end": {"real": [13, 6, 1]},
    "padded in front": {"real": [13, -6, -1]},
    "packed": {"document": [4, 7, 99]},
    "packed and padded": {"document": [4, 7, 99], "real": [13, 9, 2]},
}


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("mask", [Causal(), WINDOW, BOTH], ids=str)
def test_blocks_of_any_size_equal_the_reference(mask, sight):
    key, plain = tokens(13, **SIGHTS[sight]), KERNELS["reference"]()
    for position in ("none", "alibi"):
        for queries in (13, 6, 1):
            given = inputs(3, queries, 13)
            expected = computed(plain, context(plain, mask, key, queries, position), given)
            for size in (1, 2, 5, 128):
                kernel = KERNELS["sdpa"](block=size)
                torch.testing.assert_close(
                    computed(kernel, context(kernel, mask, key, queries, position), given), expected
                )


def test_the_blocks_of_a_window_by_eye():
    """Blocks of 4 of 13 tokens, each of which sees 4 more before it; equal blocks share one
    table.
    """
    kernel = KERNELS["sdpa"](block=4)
    blocks = context(kernel, WINDOW, tokens(13)).prepared.blocks
    assert [(b.start, b.stop, b.first, b.last, b.causal) for b in blocks] == [
        (0, 4, 0, 4, True),
        (4, 8, 0, 8, False),
        (8, 12, 4, 12, False),
        (12, 13, 8, 13, False),
    ]
    assert blocks[1].table is blocks[2].table
    assert blocks[1].table[0, 0].int().tolist() == [
        [1, 1, 1, 1, 1, 0, 0, 0],
        [0, 1, 1, 1, 1, 1, 0, 0],
        [0, 0, 1, 1, 1, 1, 1, 0],
        [0, 0, 0, 1, 1, 1, 1, 1],
    ]
    assert blocks[3].table is None  # one query that sees all five


def test_a_step_of_generation_uses_only_the_newest_keys():
    kernel = KERNELS["sdpa"]()
    assert context(kernel, WINDOW, tokens(13), 1).prepared[:3] == (False, None, 5)
    assert context(kernel, Causal(), tokens(13), 1).prepared[:3] == (False, None, None)


def test_padding_after_a_causal_text_needs_no_table():
    kernel = KERNELS["sdpa"]()
    assert context(kernel, Causal(), tokens(13, real=[13, 6, 0])).prepared == (True, None, None, ())
    for mask, real in (
        (Causal(), [13, -6]),
        (Full(), [13, 6]),
    ):  # padding that a real token would see
        assert context(kernel, mask, tokens(13, real=real)).prepared.dense is not None


class Largest(TorchDispatchMode):
    """The elements of the largest tensor that an operation makes."""

    seen = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = [
            x.untyped_storage().nbytes() for x in tree_leaves(result) if isinstance(x, torch.Tensor)
        ]
        self.seen = max([self.seen, *sizes])
        return result


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("position", ["none", "alibi"])
def test_memory_of_a_window_is_linear_in_the_length(position, dropout):
    largest = []
    for length in (512, 1024):
        kernel, given = KERNELS["sdpa"](block=32), inputs(1, length, length)
        with Largest() as ledger:
            out = kernel(
                *given, context(kernel, WINDOW, tokens(length), position=position), 0.4, dropout
            )
            out.sum().backward()
        largest.append(ledger.seen)
        assert ledger.seen < 8 * length * length / 4
    assert largest[1] <= 2 * largest[0]
