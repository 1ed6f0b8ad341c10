"""Ladders: how the loss falls with size and data. A ladder trains every variant at several sizes,
each for several numbers of tokens per parameter, so that the laws of two architectures are compared
and not their figures at one size.

design:
  name: ladder
  sizes: {model.dim: [64, 96, 128, 192], attn.heads: [2, 3, 4, 6]}   # a rung takes one of each list
  multiples: [5, 10, 20]                                             # tokens for each parameter
"""

from collections.abc import Iterable, Iterator
from typing import Any

from xformer_kit.registry import ConfigError, Fault, above, apart, shown
from xformer_kit.study.design import DESIGNS, OneAtATime, Rung
from xformer_kit.study.factor import text
from xformer_kit.study.metric import metric
from xformer_kit.study.nodes import Node
from xformer_kit.study.scaling import fewest

LENGTH = "trainer.max_steps"  # what a rung's tokens are made by


@DESIGNS.register("ladder", also_called=("scaling", "scaling_law", "scaling_laws"))
class LadderDesign(OneAtATime):
    """The baseline, and every level of every factor alone, each at all sizes x tokens per
    parameter.

    L(N, D) = E + A N^-alpha + B D^-beta is fitted to the runs of each variant (Hoffmann et al.,
    2022, arXiv:2203.15556, section 3.3): N, its own parameters, embeddings among them; D = multiple
    x N, the tokens that it reads. With one multiple, L(N) = E + A N^-alpha along D = multiple x N.
    Variants are compared seed by seed at the top rung, and by their laws.
    """

    needs_factors = False
    no_stop = (
        "fits a law to all runs of a variant, and seeds that were left out because they looked bad"
        " would bend it"
    )

    def __init__(
        self,
        *,
        sizes: dict[str, list],  # override -> its value at each size, all lists equally long
        multiples: tuple[float, ...] = (5.0, 10.0, 20.0),  # tokens for each parameter
        ahead: float = 10.0,  # times the largest size, at which the laws are evaluated
    ):
        self.sizes = sizes
        self.multiples = multiples
        self.ahead = ahead

    def rungs(self):
        for values in zip(*self.sizes.values(), strict=True):
            words = tuple(f"{key}={text(x)}" for key, x in zip(self.sizes, values, strict=True))
            for multiple in self.multiples:
                yield Rung(f"{' '.join(words)} x{multiple:g}", words, float(multiple))

    def clashes(self, node, factors):
        own = (*self.sizes, LENGTH)
        varied = {
            f"study.factors.{name}": {key for words in f.levels.values() for key in words}
            for name, f in factors.items()
        }
        varied |= {f"study.tune.{key}": {key} for key in node["tune"] or {}}
        for path, keys in varied.items():
            for key in (key for key in own if key in keys):
                yield Fault(
                    path,
                    f"sets {key}, as the ladder does on every rung",
                    fix="Leave it out of one of them.",
                )
        yield from _budget(node["budget"], self.sizes)
        try:
            higher = metric(node["metric"], node["higher_is_better"]).higher_is_better
        except ConfigError:  # reported where the metric is checked
            return
        if higher:
            yield Fault(
                "study.metric",
                f"a ladder fits a loss that falls to a floor above 0, and {node['metric']} is"
                " better higher",
                fix="Try study.metric=val/loss, or design=one_at_a_time.",
            )

    @classmethod
    def check(cls, options, context):
        yield from above(options, ahead=1)
        yield from _sizes(options)
        yield from _multiples(options)
        yield from _enough(options)


@apart
def _sizes(options: Any) -> Iterator[Fault]:
    lengths = {key: len(values) for key, values in options.sizes.items()}
    if not lengths:
        yield Fault(
            "sizes",
            "must map overrides to their values",
            got="{}",
            fix="Try sizes: {model.dim: [64, 96, 128, 192]}.",
        )
    elif len(set(lengths.values())) > 1:
        counts = ", ".join(f"{count} of {key}" for key, count in lengths.items())
        yield Fault(
            "sizes", "must give every override as many values as there are sizes", got=counts
        )
    else:
        each = list(zip(*options.sizes.values(), strict=True))
        if twice := next((size for i, size in enumerate(each) if size in each[:i]), None):
            size = ", ".join(
                f"{key}={text(value)}" for key, value in zip(lengths, twice, strict=True)
            )
            yield Fault("sizes", "must differ", got=f"{size} twice")


@apart
def _multiples(options: Any) -> Iterator[Fault]:
    given = options.multiples
    if not given or min(given) <= 0 or len(set(given)) < len(given):
        yield Fault("multiples", "must be different numbers above 0", got=shown(given))


@apart
def _enough(options: Any) -> Iterator[Fault]:
    """As many sizes as the fit needs, before anything is composed."""
    counts = {len(values) for values in options.sizes.values()}
    multiples = len(set(options.multiples))
    if len(counts) == 1 and multiples and (count := counts.pop()) < (needed := fewest(multiples)):
        law = "one number" if multiples == 1 else f"{multiples} numbers"
        yield Fault(
            "sizes",
            f"must be at least {needed} for a law with {law} of tokens per parameter",
            got=count,
            fix="Or give a second multiple, with which 3 do."
            if multiples == 1 and count == fewest(2)
            else "",
        )


def axis(multiples: Iterable[float]) -> str | None:
    """The axis of the law; None for both. With one number of tokens per parameter, tokens grow in
    step with parameters.
    """
    return "parameters" if len(set(multiples)) == 1 else None


def _budget(budget: Node, sizes: Node) -> Iterator[Fault]:
    """On each rung a variant may be brought to the baseline by a knob that is not the ladder's
    own.
    """
    what, knob = budget["match"], budget["by"]
    if what != "none" and knob == LENGTH:
        yield Fault(
            "study.budget",
            f"{what} are matched by {LENGTH}, which the ladder sets from the tokens per parameter"
            " of a rung",
            fix=(
                "Try budget: {match: params, by: ffn.width}, {match: flops, by: ffn.width}, or"
                " none."
            ),
        )
    elif knob in sizes:
        yield Fault(
            "study.budget.by",
            "must not be a size of the ladder",
            got=knob,
            fix="Turn another knob, such as ffn.width.",
        )
