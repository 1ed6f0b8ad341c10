"""The base class of attentions, and their registry.

Shapes: b batch, t queries, s keys, h query heads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from xformer_kit.attention.heads import head_channels
from xformer_kit.kernel import Kernel
from xformer_kit.registry import Context, Fault, Options, Registry, config_error
from xformer_kit.registry.traits import AttentionTraits
from xformer_kit.tensors import Info, hidden
from xformer_kit.tensors.cache import Cache
from xformer_kit.tensors.fused_projections import FusedProjections
from xformer_kit.tensors.precision import for_linear
from xformer_kit.tensors.tokens import AttentionContext, after_extras


class Attention(nn.Module):
    """Base of all attentions.

    computes: what it needs of its kernel: `scores`; `recurrence`, the steps of a state; or
    `mixture` if it mixes tokens without either.
    kernel: the kernel, if it calls one.
    o: its output projection, if it has one.
    bounded: whether it supports at most model.max_len tokens.
    fusible: names of linear maps of its input that generation computes as one product,
        `fused_maps`, if that is not None; `project_input` returns their outputs in either case.
    """

    computes = "scores"
    bounded = False
    fusible: tuple[str, ...] = ()
    fused_maps: FusedProjections | None = None  # set in generation, for the maps in `fusible`

    parameter_info: Mapping[str, Info] = {"v": hidden(scales_output=True), "o": hidden(writes=True)}

    def forward(
        self,
        x: Tensor,
        source: Tensor | None,
        context: AttentionContext,
        cache: Cache | None = None,
    ) -> Tensor:
        """Returns the output (b, t, dim) for queries from x (b, t, dim). context: Tokens of queries
        (b, t) and keys (b, s), mask, position and kernel.

        Without `source`, keys and values are those in `cache`, followed by those of x, which are
        appended to it. With `source` (b, s, dim) they are the source's: the first call stores them
        in `cache`, later calls read them there (`cache.kept()`).
        """
        raise NotImplementedError

    def project_input(self, x: Tensor, context: AttentionContext) -> Sequence[Tensor]:
        """Returns the output (b, t, channels) of each map in `fusible` for x (b, t, dim), as the
        extras of the block change it.
        """
        if self.fused_maps is not None:
            maps = self.fused_maps(x)
        else:
            x = for_linear(x)
            maps = [getattr(self, name)(x) for name in self.fusible]
        return maps if context.projected is None else after_extras(context, self.fusible, maps)

    def project_qkv(
        self, x: Tensor, source: Tensor | None, context: AttentionContext, cache: Cache | None
    ) -> Sequence[Tensor]:
        """Returns the projections q (b, t, channels) of x (b, t, dim), and k and v (b, s, channels)
        of x or of a source (b, s, dim); only q if `cache` holds those of the source.
        """
        if source is None:
            return self.project_input(x, context)
        maps: Any = self
        if cache is not None and cache.length:
            return (maps.q(x),)
        return maps.q(x), maps.k(source), maps.v(source)

    def queries_of(self, x: Tensor) -> Tensor:
        """(b, n, dim) -> their queries before rotation, (b, heads, n, head_dim). A position's
        `scores` may apply it to a table of its own.
        """
        raise NotImplementedError

    def keys_of(self, x: Tensor) -> Tensor:
        """(b, n, dim) -> their keys before rotation, (b, kv_heads, n, head_dim)."""
        raise NotImplementedError

    def cache(self, rows: int, length: int) -> Cache | None:
        """Returns an empty cache for `rows` sequences of at most `length` tokens, such as keys and
        values (rows, kv_heads, length, head_dim), with the weights' device and dtype; None if it
        keeps nothing. The first tensors that are appended may change the dtype.
        """
        raise config_error(
            "attn",
            f"generation needs a method cache(rows, length), and '{type(self).__name__}' has none",
            fix="Return a cache of what later tokens read, such as KeyValueCache, or None.",
        )

    def attention_weights(
        self, calls: Sequence[Tensor], probe: Callable[[int], Tensor]
    ) -> Tensor | None:
        """The attention weights (b, h, t, s) of a forward pass, for plots; None if it has none. An
        attention that does not call its kernel exactly once overrides it.

        calls: the weights (b, h, t, s) of each call of its kernel.
        probe: probe(width) computes the weights (b, h, t, s) if no kernel does; the input of `o`,
        `width` channels per head, must be linear in the output of `v`.
        """
        return calls[0] if len(calls) == 1 else None

    @classmethod
    def cannot(cls, options: Options, context: Context) -> Iterator[Fault]:
        """Yields why it cannot be composed with its block, and options without effect."""
        yield from ()

    @classmethod
    def traits(cls, options: dict[str, Any], dim: int) -> AttentionTraits:
        """The properties that other components may depend on, with these options."""
        heads = options.get("heads") or 1
        head_dim = head_channels(dim, heads, options.get("head_dim"))
        kv_heads = options.get("kv_heads") or heads
        own_keys = options.get("keys") != "earlier"
        found: dict[str, Any] = {}
        if (score := options.get("score")) is not None:
            component = score.component
            found = {
                "score": component.describe(score),
                "pointwise": component.pointwise(score),
                "signed": component.signed(score),
                "cross_layer": {"score": heads} if component.cross_layer else {},
            }
        return AttentionTraits(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            v_head_dim=options.get("v_head_dim") or head_dim,
            width=head_dim,
            computes=cls.computes,
            projects=cls.queries_of is not Attention.queries_of and own_keys,
            **found,
        )


class AttentionArguments:
    """What the model passes to the constructor of an attention."""

    dim: int  # channels of the residual stream
    depth: int  # index of the first layer that uses it
    layers: int  # number of layers of the stack
    # creates a norm of the block's kind over so many channels; keyword arguments are its options
    # that differ from those of the block
    norm: Callable[..., nn.Module]
    kernel: Kernel  # computes the output of the heads from queries, keys and values
    max_len: int  # longest text in tokens, with those that extras put in front of it
    # for an attention with an option `keys`, of which `earlier` takes the keys and values of an
    # earlier layer: name in `context.cross_layer_state` of what it passes to later layers or takes;
    # None if no other layer uses them
    exchange: str | None


ATTENTIONS = Registry("attn", caller_arguments=AttentionArguments, base=Attention)


def channels(width: int, count: int) -> int:
    """The number of channels to add to `width`: at least `count`, such that the sum is a multiple
    of 8, which fused kernels need, if `width` is.
    """
    return count + (-count % 8 if width % 8 == 0 else 0)
