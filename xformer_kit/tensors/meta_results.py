"""Operations on the meta device, each computed once for arguments of the same sizes."""

from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

MAX_RESULTS = 50_000  # that are kept


class MetaResults(TorchDispatchMode):
    """Keeps the sizes of the results of operations on the meta device, where tensors have no
    values: torch computes most of them in Python, which takes longer than values would.

    An operation is computed each time if it changes an argument or returns a view of one.
    """

    _results: ClassVar[dict[Any, Any]] = {}

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if _has_effects(operation):  # almost half of the operations of a step
            out = operation(*args, **kwargs)
            self.check(operation, tree_leaves(out))
            return out
        key = operation, _sizes(args), _sizes(tuple(kwargs.items()))
        if key in self._results:
            is_tensor, sizes = self._results[key]
            tensors = [
                torch.empty_strided(shape, stride, dtype=dtype, device=device)
                for shape, stride, dtype, device in sizes
            ]
            return tensors[0] if is_tensor else tensors
        out = operation(*args, **kwargs)
        leaves = tree_leaves(out)
        self.check(operation, leaves)
        if all(isinstance(leaf, Tensor) and leaf.is_meta for leaf in leaves):
            if len(self._results) >= MAX_RESULTS:
                self._results.clear()
            self._results[key] = isinstance(out, Tensor), _sizes(leaves)
        return out

    def check(self, operation: Any, tensors: list[Any]) -> None:
        """Called with the results of each operation that is computed."""


def _sizes(value: Any) -> Any:
    """Returns sizes, type and device in place of each tensor, and the type of each other value."""
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype, value.device
    if isinstance(value, (list, tuple)):
        return tuple(map(_sizes, value))
    return type(value), value


@cache
def _has_effects(operation: Any) -> bool:
    """Whether an operation changes an argument, or returns a view of one."""
    schema = operation._schema
    return any(value.alias_info for value in (*schema.arguments, *schema.returns))
