"""Ladders: every variant is trained at several sizes, each for several numbers of tokens per
parameter, to compare the scaling laws of architectures instead of their losses at one size.

design:
  name: ladder
  sizes: {model.dim: [64, 96, 128, 192], attn.heads: [2, 3, 4, 6]}   # a rung takes one of each list
  multiples: [5, 10, 20]                                             # tokens per parameter
"""

from collections.abc import Iterable
from dataclasses import dataclass

from xformer_kit.metrics import VAL_LOSS, direction
from xformer_kit.registry import Fault, above
from xformer_kit.study.design import DESIGNS, OneAtATime, Rung
from xformer_kit.study.sizes import conflicts
from xformer_kit.text.command_lines import override_text

STEPS_KEY = "trainer.max_steps"  # the key that sets a rung's number of tokens


@DESIGNS.register("ladder", also_called=("scaling", "scaling_law", "scaling_laws"))
@dataclass(kw_only=True, eq=False)
class LadderDesign(OneAtATime):
    """The baseline, and every level of every factor, each at all sizes x tokens per parameter.

    L(N, D) = E + A N^-alpha + B D^-beta is fitted to the runs of each variant (Hoffmann et al.,
    2022, arXiv:2203.15556, section 3.3): N, its own parameters including embeddings; D = multiple x
    N, its training tokens. With one multiple, L(N) = E + A N^-alpha along D = multiple x N.
    Variants are compared by paired differences at the top rung, and by their laws.
    """

    needs_factors = False
    no_stop = (
        "fits a law to all runs of a variant, and leaving out seeds depending on their loss would"
        " bias it"
    )

    sizes: dict[str, list]  # override -> its values; all lists have one value per size
    multiples: tuple[float, ...] = (5.0, 10.0, 20.0)  # tokens per parameter
    ahead: float = 10.0  # laws are extrapolated to this multiple of the largest size

    def rungs(self):
        for values in zip(*self.sizes.values(), strict=True):
            words = tuple(
                f"{key}={override_text(x)}" for key, x in zip(self.sizes, values, strict=True)
            )
            for multiple in self.multiples:
                yield Rung(f"{' '.join(words)} x{multiple:g}", words, float(multiple))

    def conflicts(self, node, factors):
        yield from conflicts((*self.sizes, STEPS_KEY), "the ladder", node, factors)
        higher = node["higher_is_better"]
        if direction(node["metric"]) if higher is None else higher:
            yield Fault(
                "study.metric",
                f"a ladder fits a loss that falls to a floor above 0, and {node['metric']} is"
                " better higher",
                fix=f"Try study.metric={VAL_LOSS}, or design=one_at_a_time.",
            )

    @classmethod
    def check(cls, options, context):
        yield from above(options, ahead=1)
        lengths = {key: len(values) for key, values in options.sizes.items()}
        if len(set(lengths.values())) != 1:
            yield Fault(
                "sizes",
                "must map overrides to their values, as many of each as there are sizes",
                ", ".join(f"{count} of {key}" for key, count in lengths.items()) or "none",
                "Try sizes: {model.dim: [64, 96, 128, 192]}.",
            )
        multiples = options.multiples
        if not multiples or min(multiples) <= 0 or len(set(multiples)) < len(multiples):
            yield Fault("multiples", "must be different numbers above 0", multiples)


def law_axis(multiples: Iterable[float]) -> str | None:
    """The axis of the law; None for both. With one number of tokens per parameter, tokens are
    proportional to parameters, so the law has one axis.
    """
    return "parameters" if len(set(multiples)) == 1 else None
