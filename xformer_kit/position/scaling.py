"""Scaling of rotary positions for texts longer than in training.

Without scaling, pair i of the r rotated channels has the rate theta^(-2i / r), radians per token.
Every scaling changes the rates; some also multiply queries and keys by a gain.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from xformer_kit.registry import Fault, Faults, Options, Registry, above, at_least, format_value


def plain_rates(theta: float | Tensor, exponent: Tensor) -> Tensor:
    """theta^(-2i / r) of each pair, as published models round it in fp32: at position 1,000 the
    last digit of a rate is 1e-4 of an angle.
    """
    return 1.0 / theta**exponent


class Scaling:
    """Base of all scalings: returns the rates without change."""

    @property
    def by_length(self) -> bool:
        """Whether rates depend on the length of the text, so cached keys may become wrong."""
        return type(self).needs_recompute is not Scaling.needs_recompute

    def rates(self, theta: float, exponent: Tensor, length: Tensor, trained_len: int) -> Tensor:
        """Returns radians per token. `exponent`: 2i / r for each pair, (r / 2,) in fp32; `length`:
        tokens of each text, broadcasting to (..., 1); `trained_len`: model.max_len, which the
        option `original` overrides.
        """
        return plain_rates(theta, exponent)

    def gain(self, trained_len: int) -> float:
        """Factor on rotated queries and keys; scores are multiplied by its square."""
        return 1.0

    def score_gain(self) -> float:
        """Factor on all scores of an attention that rotates only some of its channels."""
        return 1.0

    def needs_recompute(self, cached: int, total: int, uneven: bool, trained_len: int) -> bool:
        """Whether cached keys of `cached` tokens are wrong for texts of `total` tokens. `uneven`:
        whether texts of the batch have different lengths.
        """
        return False

    def pairs(self) -> int | None:
        """The number of pairs that it has rates for; None if any number is possible."""
        return None


SCALINGS = Registry("scaling", base=Scaling, group="position.scaling")


@SCALINGS.register("none", also_called=("default", "null"))
@dataclass(frozen=True)
class Unscaled(Scaling):
    """theta^(-2i / r) for any length (Su et al., 2021, arXiv:2104.09864, eq. 15)."""


NO_SCALING = Unscaled()


@SCALINGS.register("linear", also_called=("position_interpolation", "pi"))
@dataclass(frozen=True)
class LinearScaling(Scaling):
    """Divides all rates by `factor`: positions are interpolated into the range of the training
    (Chen et al., 2023, arXiv:2306.15595, eq. 4).
    """

    factor: float = 2.0  # how many times longer texts may be

    @classmethod
    def check(cls, options, context):
        yield from above(options, factor=0)

    def rates(self, theta, exponent, length, trained_len):
        return plain_rates(theta, exponent) / self.factor


@dataclass(frozen=True)
class TrainedLengthScaling(Scaling):
    """Base of the scalings that depend on the length of the training."""

    def original_len(self, trained_len: int) -> int:
        """Length of the training, in tokens: the option `original`, or by default model.max_len."""
        return getattr(self, "original", None) or trained_len

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, factor=1)
        yield from at_least(options, "token", original=1)


@SCALINGS.register("dynamic", also_called=("dynamic_ntk",), similar=("ntk",))
@dataclass(frozen=True)
class DynamicScaling(TrainedLengthScaling):
    """theta * (factor * length / original - (factor - 1))^(r / (r - 2)) replaces theta if a text is
    longer than `original` (bloc97 and emozilla, 2023; Peng et al., 2023, arXiv:2309.00071, appendix
    B.1).

    Above `original` every new token changes the rotation of all others, so a cache cannot be used:
    the whole text is computed again for each token.
    """

    factor: float = 1.0  # how fast theta grows with the length
    original: int | None = None  # tokens of the training; null is model.max_len

    @classmethod
    def breaks(cls, options):
        if options.original is None:  # no text is longer
            return {}
        reason = (
            "above `original` each rotation depends on the length of the text, which a new token"
            " changes for all tokens"
        )
        return dict.fromkeys(("cache", "shift"), reason)

    def rates(self, theta, exponent, length, trained_len):
        original, r = self.original_len(trained_len), 2 * len(exponent)
        # With one pair the exponent is undefined; the rate of that pair is always 1.
        power = r / (r - 2) if r > 2 else 1.0
        ratio = self.factor * length.clamp(min=original).float() / original - (self.factor - 1)
        return plain_rates(theta * ratio**power, exponent)

    def needs_recompute(self, cached, total, uneven, trained_len):
        return total > self.original_len(trained_len)


def gain_faults(options: Options, name: str) -> Faults:
    """The fault of an option that sets the gain, if `attention_factor` is given too."""
    if options.attention_factor is not None:
        got = f"{getattr(options, name)} and {options.attention_factor}"
        rule = "sets the gain, and attention_factor is the gain itself"
        yield Fault(name, rule, got, fix="Leave one out.")


@SCALINGS.register("yarn")
@dataclass(frozen=True)
class YaRN(TrainedLengthScaling):
    """Divides slow rates by `factor`, keeps fast ones, and multiplies queries and keys by 0.1
    ln(factor) + 1 (Peng et al., 2023, arXiv:2309.00071, section 3.2 and eq. 15; the ramp as in the
    authors' code).

    Pairs that make more than `beta_fast` turns within `original` tokens are fast, pairs that make
    fewer than `beta_slow` turns are slow; in between, a linear ramp over the pairs mixes both
    rates.

    With `mscale` and `mscale_all` the gain is (0.1 mscale ln(factor) + 1) / (0.1 mscale_all
    ln(factor) + 1), as in DeepSeek-V2; attn=latent then multiplies its scale by (0.1 mscale_all
    ln(factor) + 1)^2.
    """

    factor: float = 4.0  # how many times longer texts may be
    original: int | None = None  # tokens of the training; null is model.max_len
    beta_fast: float = 32.0  # turns within `original` above which a rate is kept
    beta_slow: float = 1.0  # turns within `original` below which a rate is divided
    mscale: float | None = None  # weight of ln(factor) in the gain; null is 1
    mscale_all: float | None = None  # the same in the denominator; null is 0
    attention_factor: float | None = None  # the gain itself; null follows from factor
    truncate: bool = True  # whether the ramp starts and ends at integer pair indices

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from above(
            options, beta_fast=0, beta_slow=0, mscale=0, mscale_all=0, attention_factor=0
        )
        yield from at_least(options, "(beta_slow)", beta_fast=options.beta_slow)
        if (options.mscale is None) != (options.mscale_all is None):
            got = f"{format_value(options.mscale)} and {format_value(options.mscale_all)}"
            yield Fault(
                "mscale", "needs mscale_all, and mscale_all mscale", got, "Set both, or none."
            )
        elif options.mscale is not None:
            yield from gain_faults(options, "mscale")

    def rates(self, theta, exponent, length, trained_len):
        pairs, last = len(exponent), 2 * len(exponent) - 1
        low, high = (
            self.pair_index(beta, theta, pairs, trained_len)
            for beta in (self.beta_fast, self.beta_slow)
        )
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, last)
        high = high + 0.001 if high == low else high  # avoids a division by 0
        index = torch.arange(pairs, device=exponent.device, dtype=torch.float32)
        ramp = ((index - low) / (high - low)).clamp(0, 1)
        waves, kept = theta**exponent, 1 - ramp
        return 1.0 / (self.factor * waves) * (1 - kept) + 1.0 / waves * kept

    def pair_index(self, turns: float, theta: float, pairs: int, trained_len: int) -> float:
        """The index of the pair, as a real number, that makes `turns` turns in the training."""
        length = self.original_len(trained_len) / (turns * 2 * math.pi)
        return pairs * math.log(length) / math.log(theta)

    def gain(self, trained_len):
        if self.attention_factor is not None:
            return self.attention_factor
        stretch = 0.1 * math.log(self.factor)
        if self.mscale is None or self.mscale_all is None:
            return stretch + 1
        return (stretch * self.mscale + 1) / (stretch * self.mscale_all + 1)

    def score_gain(self):
        return (0.1 * math.log(self.factor) * (self.mscale_all or 0.0) + 1) ** 2


@SCALINGS.register("llama3")
@dataclass(frozen=True)
class Llama3(TrainedLengthScaling):
    """Stretches waves longer than original / low by `factor` and keeps those shorter than original
    / high (Llama 3.1's released code, 2024). In between, the two rates are mixed linearly in the
    number of turns within `original`.
    """

    factor: float = 8.0  # how many times longer texts may be
    original: int | None = None  # tokens of the training; null is model.max_len
    low: float = 1.0  # turns within `original` below which a wave is stretched
    high: float = 4.0  # turns within `original` above which a wave is kept

    @classmethod
    def check(cls, options, context):
        yield from super().check(options, context)
        yield from above(options, low=0)
        yield from above(options, "That is low.", high=options.low)

    def rates(self, theta, exponent, length, trained_len):
        rates = plain_rates(theta, exponent)
        turns = self.original_len(trained_len) / (2 * math.pi / rates)
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return (1 - kept) * rates / self.factor + kept * rates


@SCALINGS.register("longrope", also_called=("su", "long_rope"))
@dataclass(frozen=True)
class LongRope(TrainedLengthScaling):
    """Divides the rate of each pair by its own factor, `short` up to `original` tokens and `long`
    in longer texts (Ding et al., 2024, arXiv:2402.13753, section 3.2; Phi-3's released code). The
    factors are the result of a search.

    If a text grows beyond `original` during generation, the whole text is computed again for each
    further token; a longer prompt is computed once.
    """

    # divisors of the rates up to `original` tokens, one for each pair of channels
    short: tuple[float, ...]
    long: tuple[float, ...]  # divisors of the rates in longer texts
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
        if options.factor != 1:
            yield from gain_faults(options, "factor")
        if len(options.short) != len(options.long):
            yield Fault(
                "short",
                "must have as many numbers as long",
                got=f"{len(options.short)} and {len(options.long)}",
            )

    def rates(self, theta, exponent, length, trained_len):
        short, long = (
            torch.tensor(factors, device=exponent.device) for factors in (self.short, self.long)
        )
        longer = length > self.original_len(trained_len)
        return 1.0 / (torch.where(longer, long, short) * theta**exponent)

    def gain(self, trained_len):
        if self.attention_factor is not None:
            return self.attention_factor
        original = self.original_len(trained_len)
        if self.factor <= 1 or original <= 1:
            return 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(original))

    def needs_recompute(self, cached, total, uneven, trained_len):
        original = self.original_len(trained_len)
        return total > original and (uneven or cached <= original)

    def pairs(self):
        return len(self.long)
