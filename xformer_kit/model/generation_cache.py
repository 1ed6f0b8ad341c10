"""What a stack keeps between calls, so that each token is read once."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from xformer_kit.model.cache import Cache, KeyValueCache, WindowCache
from xformer_kit.model.tokens import Tokens
from xformer_kit.registry import config_error


class GenerationCache:
    """What a stack keeps between calls: the tokens so far, one cache for each attention of each
    layer, and those of the extras.

    crosses: for each layer the names of the caches that hold the source's keys and values.
    """

    def __init__(
        self,
        caches: Sequence[dict[str, Cache]],
        crosses: Sequence[Sequence[str]] = (),
        extra: Mapping[str, Mapping[str, Cache]] | None = None,
    ):
        self.caches = caches
        self.crosses = crosses or [()] * len(caches)
        self.extra = extra or {}
        self.tokens: Tokens | None = None
        # newest tokens that no cache has read, since what the caches hold was wrong beside them
        self.unread = 0
        self.left: int | None = None  # tokens before a new one that the caches give; None: all

    def narrow(self, left: int) -> bool:
        """Keep no more than is seen from `left` tokens on, where all caches hold plain keys and
        values; whether they do.
        """
        if any(type(cache) is not KeyValueCache for cache in self._own()):
            return False
        for caches, cross in zip(self.caches, self.crosses, strict=True):
            caches |= {
                n: WindowCache(c.held, left)  # type: ignore[attr-defined]
                for n, c in caches.items()
                if n not in cross
            }
        self.left = left
        return True

    def select(self, rows: Tensor, sources: bool = True) -> None:
        """Go on with these rows of the batch (beam search). Without `sources` each takes the place
        of one with the same source, whose keys and values stay where they are.
        """
        for cache in self._each() if sources else self._own():
            cache.select(rows)
        if self.tokens is not None:
            self.tokens = self.tokens.select(rows)

    def rewind(self, n: int) -> None:
        """Forget the newest n tokens. Raises ConfigError, with nothing forgotten, where a cache
        cannot.
        """
        held = self.length
        if n > held:
            raise config_error(
                "rewind",
                f"the cache holds {held} tokens",
                got=n,
                fix=f"Rewind by at most {held}.",
            )
        if n and self.tokens is not None:
            unread = min(n, self.unread)
            for cache in sorted(
                self._own(), key=lambda cache: cache.rewinds
            ):  # those that refuse come first
                cache.rewind(n - unread)
            self.unread -= unread
            self.tokens = self.tokens.map(lambda field: field[:, :-n])

    def seen(self, new: int) -> Tokens:
        """The tokens whose keys and values the caches give to the `new` newest ones."""
        if self.left is None or self.length <= self.left + new:
            return self.tokens
        return self.tokens.map(lambda field: field[:, -(self.left + new) :])

    @property
    def length(self) -> int:
        return 0 if self.tokens is None else self.tokens.length

    @property
    def bytes(self) -> int:
        """Bytes held by all caches."""
        return sum(cache.bytes for cache in self._each())

    def _each(self):
        return (*(cache for caches in self.caches for cache in caches.values()), *self._of_extras())

    def _own(self):
        """The caches of the stack's own tokens, without those of a source."""
        pairs = zip(self.caches, self.crosses, strict=True)
        of_layers = (
            cache for caches, cross in pairs for n, cache in caches.items() if n not in cross
        )
        return (*of_layers, *self._of_extras())

    def _of_extras(self):
        return (cache for caches in self.extra.values() for cache in caches.values())
