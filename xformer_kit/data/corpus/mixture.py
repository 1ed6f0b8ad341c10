"""Several corpora as one, mixed by weight."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from xformer_kit.data.corpus.base import CORPORA, Corpus
from xformer_kit.data.plain import Plain
from xformer_kit.registry import Fault, above


@CORPORA.register(
    "mixture", also_called=("mix", "mixed", "blend", "blended"), similar=("interleave",)
)
@dataclass(kw_only=True, eq=False)
class Mixture(Corpus):
    """Several texts, or several corpora of pairs, mixed by weight: p_k = w_k^(1/T) / sum_j
    w_j^(1/T)

    p_k: the probability that an example is of part k (Raffel et al., 2020, JMLR 21(140), section
    3.5.2). w: `weights`, or by default the numbers of training examples, so that each occurs once
    per epoch (there: examples-proportional mixing). T: `temperature` (there: temperature-scaled
    mixing); 1 uses the weights as they are, a large one makes all parts equal.

    An epoch has as many examples as all parts together, n; n p_k of them, rounded, are of part k,
    at random positions. No example of a part is repeated before all of them have occurred. One
    tokenizer is fitted on the training texts of all parts. Validation and test are all examples of
    all parts; the loss of each part is reported too.
    """

    of: dict[str, Corpus]  # by name, such as {prose: {name: pydoc}, code: {name: stdlib_code}}
    # name -> weight, such as {prose: 2, code: 1}; null: by size
    weights: dict[str, float] | None = None
    # above 1: nearer to equal weights; below 1: nearer to only the largest weight
    temperature: float = 1.0

    def __post_init__(self) -> None:
        for name, part in self.of.items():
            part.config_path = self.option_path(f"of.{name}")
        parts = self.of.values()
        self.form = next(iter(parts)).form
        self.documents = all(part.documents for part in parts)
        self.splits = tuple(dict.fromkeys(split for part in parts for split in part.splits))

    @classmethod
    def forms(cls) -> dict[str, str]:
        return {form: f" data.of={{...}} of {form}" for form in ("text", "pairs")}

    @classmethod
    def form_of(cls, options: Plain) -> str:
        forms = map(_form, _nodes(options.get("of")).values())
        return next(filter(None, forms), cls.form)

    @classmethod
    def documents_of(cls, options: Plain) -> bool:
        return all(
            node.get("name") in CORPORA
            and CORPORA[node["name"]].documents_of(CORPORA.complete(node))
            for node in _nodes(options.get("of")).values()
        )

    @classmethod
    def check(cls, options, context):
        if not options.of:
            yield Fault(
                "of",
                "must name at least one corpus",
                got="{}",
                fix="Try {prose: {name: pydoc}, code: {name: stdlib_code}}.",
            )
            return
        yield from above(options, "1 takes the weights as they are.", temperature=0)
        for name in options.of:
            if not str(name).isidentifier():
                yield Fault(
                    "of",
                    "must give each corpus a name of letters, digits and _, for its figures",
                    got=f"{name!r}",
                    fix="Try part_1.",
                )
        yield from _form_faults(options.of)
        if options.weights is not None:
            if options.weights.keys() != options.of.keys():
                yield Fault(
                    "weights",
                    "must give a weight to each corpus of data.of, and to no other",
                    f"{', '.join(options.weights)}, and data.of has {', '.join(options.of)}",
                    "null is by size.",
                )
            for name, weight in options.weights.items():
                if weight <= 0:
                    yield Fault(
                        f"weights.{name}",
                        "must be above 0",
                        weight,
                        "Leave the corpus out of data.of for none of it.",
                    )

    def stamp(self) -> list[Any]:
        return [[name, part.stamp()] for name, part in self.of.items()]

    def texts(self, split: str, *side: str) -> Iterator[str]:
        """Yields the texts of the parts, one part after the other. side: as in PairCorpus."""
        for part in self.of.values():
            if split in part.splits:
                yield from part.texts(split, *side)

    def size(self) -> int:
        return sum(part.size() for part in self.of.values())


def _nodes(of: Any) -> Plain:
    """Returns the config nodes of the parts; a name is a node without options."""
    if not isinstance(of, Mapping):
        return {}
    return {name: CORPORA.as_node(node) or {} for name, node in of.items()}


def _form(node: Any) -> str | None:
    """Returns the form of the corpus of a part's node, text, pairs or labelled (`Corpus.form`);
    None if the node names no registered corpus.
    """
    is_corpus = isinstance(node, Mapping) and node.get("name") in CORPORA
    return CORPORA[node["name"]].form_of(CORPORA.complete(node)) if is_corpus else None


def _form_faults(of: Plain) -> Iterator[Fault]:
    """Yields the faults of parts that cannot be mixed."""
    nodes = _nodes(of)
    forms = {name: _form(node) for name, node in nodes.items()}
    for name, node in nodes.items():
        if node["name"] == "mixture" or forms[name] == "labelled":
            yield Fault(
                f"of.{name}",
                "must be a text or pairs, no mixture and no probe, which has its own words",
                node["name"],
            )
    if {"text", "pairs"} <= {*forms.values()}:
        yield Fault(
            "of",
            "must be texts or pairs",
            ", ".join(f"{form} from {name}" for name, form in forms.items()),
            "Leave one of the two out.",
        )
