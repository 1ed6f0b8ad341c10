"""How is a rotation stretched over texts longer than those it was trained on?

Without scaling, pair i of the r channels that turn has the rate theta^(-2i / r), radians per token.
Each choice changes the rates, and some the length of what is turned.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from xformer_kit.registry import Fault, Registry, above, at_least


class Scaling:
    """Base of all scalings: rates as they are."""

    @property
    def by_length(self) -> bool:
        """Whether rates depend on the length of the text, and what a cache holds may be stale."""
        return type(self).stale is not Scaling.stale

    def rates(self, theta: float, share: Tensor, length: Tensor, trained: int) -> Tensor:
        """Radians per token. `share` is 2i / r for each pair, (r / 2,) in fp32; `length` the tokens
        of each text, broadcasting to (..., 1); `trained` the tokens that the model is built for,
        which `original` overrides.
        """
        return theta**-share

    def gain(self, trained: int) -> float:
        """Factor on turned queries and keys; scores take its square."""
        return 1.0

    def score_gain(self) -> float:
        """Factor on all scores, where an attention shows a position some of its channels alone."""
        return 1.0

    def stale(self, held: int, total: int, uneven: bool, trained: int) -> bool:
        """Whether what a cache holds of `held` tokens is wrong beside `total`. `uneven`: texts end
        at different tokens.
        """
        return False

    def pairs(self) -> int | None:
        """The number of pairs that it has rates for; None for any."""
        return None


SCALINGS = Registry("scaling", base=Scaling, group="position.scaling")


@SCALINGS.register("none", also_called=("default", "null"))
@dataclass(frozen=True)
class Unscaled(Scaling):
    """theta^(-2i / r), whatever the length (Su et al., 2021, arXiv:2104.09864, eq. 15)."""


AS_TRAINED = Unscaled()


@SCALINGS.register("linear", also_called=("position_interpolation", "pi"))
@dataclass(frozen=True)
class Linear(Scaling):
    """All rates divided by `factor`: positions are squeezed into those of the training (Chen et
    al., 2023, arXiv:2306.15595, eq. 4).
    """

    factor: float = 2.0  # how many times longer texts may be

    @classmethod
    def check(cls, options, context):
        yield from above(options, factor=0)

    def rates(self, theta, share, length, trained):
        return theta**-share / self.factor


@dataclass(frozen=True)
class Stretched(Scaling):
    """Those that know the length of the training."""

    @property
    def known(self) -> int | None:
        """Tokens of the training; None is `model.max_len`."""
        return getattr(self, "original", None)

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, factor=1)
        yield from at_least(options, "token", original=1)


@SCALINGS.register("dynamic", also_called=("ntk", "dynamic_ntk"))
@dataclass(frozen=True)
class Dynamic(Stretched):
    """theta * (factor * length / original - (factor - 1))^(r / (r - 2)) in place of theta, once a
    text is longer than `original` (bloc97 and emozilla, 2023; Peng et al., 2023, arXiv:2309.00071,
    appendix B.1).

    Beyond `original` every new token changes the rotation of all others, so that a cache is of no
    use there: the text is read anew for each token.
    """

    factor: float = 1.0  # how fast theta grows with the length
    original: int | None = None  # tokens of the training; null is model.max_len

    @classmethod
    def breaks(cls, options):
        if options.original is None:  # then no text is longer
            return {}
        why = (
            "beyond `original` each token turns by the length of its text, which a new token"
            " changes for all"
        )
        return {"cache": why, "shift": why}

    def rates(self, theta, share, length, trained):
        original, r = self.known or trained, 2 * len(share)
        # Fewer than two pairs have no exponent of their own: the one pair always has the rate 1.
        power = r / (r - 2) if r > 2 else 1.0
        ratio = self.factor * length.clamp(min=original).float() / original - (self.factor - 1)
        return (theta * ratio**power) ** -share

    def stale(self, held, total, uneven, trained):
        return total > (self.known or trained)


@SCALINGS.register("yarn")
@dataclass(frozen=True)
class YaRN(Stretched):
    """Slow rates are divided by `factor`, fast ones stay, and queries and keys are multiplied by
    0.1 ln(factor) + 1 (Peng et al., 2023, arXiv:2309.00071, section 3.2 and eq. 15; the ramp as in
    the authors' code).

    Pairs that turn more than `beta_fast` times within `original` tokens are fast, those that turn
    less than `beta_slow` times are slow, and between the two it is a ramp over the pairs.

    With `mscale` and `mscale_all` the gain is (0.1 mscale ln(factor) + 1) / (0.1 mscale_all
    ln(factor) + 1), as in DeepSeek-V2; attn=latent then multiplies its scale by (0.1 mscale_all
    ln(factor) + 1)^2.
    """

    factor: float = 4.0  # how many times longer texts may be
    original: int | None = None  # tokens of the training; null is model.max_len
    beta_fast: float = 32.0  # turns within `original` from which on a rate stays
    beta_slow: float = 1.0  # turns below which a rate is divided
    mscale: float | None = None  # weight of ln(factor) in the gain; null is 1
    mscale_all: float | None = None  # the same below the fraction line; null is 0
    attention_factor: float | None = None  # the gain itself; null follows from factor
    truncate: bool = True  # whether the ramp begins and ends at whole pairs

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from above(
            options, beta_fast=0, beta_slow=0, mscale=0, mscale_all=0, attention_factor=0
        )
        if options.beta_fast < options.beta_slow:
            yield Fault(
                "beta_fast",
                "must be at least beta_slow",
                got=f"{options.beta_fast} and {options.beta_slow}",
            )
        if (options.mscale is None) != (options.mscale_all is None):
            there = (
                ("mscale_all", options.mscale_all)
                if options.mscale is None
                else ("mscale", options.mscale)
            )
            other = "mscale" if options.mscale is None else "mscale_all"
            yield Fault(
                there[0],
                f"goes with {other}, which is null",
                got=there[1],
                fix="Set both, or neither.",
            )
        elif options.mscale is not None and options.attention_factor is not None:
            both = f"got {options.mscale} beside attention_factor={options.attention_factor}"
            yield Fault(
                "mscale",
                f"gives the gain, and attention_factor is the gain itself; {both}",
                fix="Leave one null.",
            )

    def rates(self, theta, share, length, trained):
        pairs, last = len(share), 2 * len(share) - 1
        low, high = (
            self._pair(beta, theta, pairs, trained) for beta in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, last)
        high = high + 0.001 if high == low else high  # a step
        ramp = (
            (torch.arange(pairs, device=share.device, dtype=torch.float32) - low) / (high - low)
        ).clamp(0, 1)
        rates = theta**-share
        return rates / self.factor * ramp + rates * (1 - ramp)

    def _pair(self, turns: float, theta: float, pairs: int, trained: int) -> float:
        """The pair, as a real number, that turns so many times within the training's tokens."""
        return pairs * math.log((self.known or trained) / (turns * 2 * math.pi)) / math.log(theta)

    def gain(self, trained):
        if self.attention_factor is not None:
            return self.attention_factor
        wide = 0.1 * math.log(self.factor)
        if self.mscale is None or self.mscale_all is None:
            return wide + 1
        return (wide * self.mscale + 1) / (wide * self.mscale_all + 1)

    def score_gain(self):
        return (0.1 * math.log(self.factor) * (self.mscale_all or 0.0) + 1) ** 2


@SCALINGS.register("llama3")
@dataclass(frozen=True)
class Llama3(Stretched):
    """Waves longer than original / low are stretched by `factor`, those shorter than original /
    high stay (Llama 3.1's released code, 2024). Between the two rates are mixed linearly in the
    number of turns within `original`.
    """

    factor: float = 8.0  # how many times longer texts may be
    original: int | None = None  # tokens of the training; null is model.max_len
    low: float = 1.0  # turns within `original` below which a wave is stretched
    high: float = 4.0  # turns from which on it stays

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from above(options, low=0)
        if options.high <= options.low:
            yield Fault("high", "must be above low", got=f"{options.high} and {options.low}")

    def rates(self, theta, share, length, trained):
        rates = theta**-share
        turns = (self.known or trained) * rates / (2 * math.pi)
        stays = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return rates / self.factor * (1 - stays) + rates * stays


@SCALINGS.register("longrope", also_called=("su", "long_rope"))
@dataclass(frozen=True)
class LongRope(Stretched):
    """The rate of each pair divided by a factor of its own, `short` up to `original` tokens, `long`
    in longer texts (Ding et al., 2024, arXiv:2402.13753, section 3.2; Phi-3's released code). A
    search has found the factors.

    A text that grows beyond `original` in generation is read anew for each token from there on; a
    prompt that is longer is read once.
    """

    short: tuple[
        float, ...
    ]  # divisors of the rates up to `original` tokens, one for each pair of channels
    long: tuple[float, ...]  # divisors beyond
    # how many times longer texts may be: the gain is sqrt(1 + ln(factor) / ln(original))
    factor: float = 1.0
    original: int | None = None  # tokens of the training; null is model.max_len
    attention_factor: float | None = None  # the gain itself; null follows from factor

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from above(options, attention_factor=0)
        for name in ("short", "long"):
            if any(not value > 0 for value in getattr(options, name)):
                yield Fault(name, "must be numbers above 0", got=min(getattr(options, name)))
        if options.attention_factor is not None and options.factor != 1:
            both = f"got {options.factor} beside attention_factor={options.attention_factor}"
            yield Fault(
                "factor",
                f"gives the gain, and attention_factor is the gain itself; {both}",
                fix="Leave one out.",
            )
        if len(options.short) != len(options.long):
            yield Fault(
                "short",
                "must have as many numbers as long",
                got=f"{len(options.short)} and {len(options.long)}",
            )

    def rates(self, theta, share, length, trained):
        short, long = (
            torch.tensor(which, device=share.device) for which in (self.short, self.long)
        )
        beyond = length > (self.known or trained)
        return theta**-share / torch.where(beyond, long, short)

    def gain(self, trained):
        if self.attention_factor is not None:
            return self.attention_factor
        original = self.known or trained
        return (
            math.sqrt(1 + math.log(self.factor) / math.log(original))
            if self.factor > 1 and original > 1
            else 1.0
        )

    def stale(self, held, total, uneven, trained):
        original = self.known or trained
        return total > original and (uneven or held <= original)

    def pairs(self):
        return len(self.long)
