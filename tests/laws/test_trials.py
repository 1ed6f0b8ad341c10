"""The compositions in which a component is checked: with its own options, in models that fit."""

from breaking import registered
from torch import nn

from xformer_kit.attention import ATTENTIONS, EIGHT_HEADS, HeadShape, MultiHead
from xformer_kit.ffn import FFN, FFNS
from xformer_kit.laws import check_component, checking
from xformer_kit.laws.sizes import SIZES
from xformer_kit.laws.tiny_composition import DIM
from xformer_kit.laws.trials import COMPANIONS, size_note, trials
from xformer_kit.plan import KINDS, model_plan
from xformer_kit.registry import Fault, at_least


class Sized(FFN):
    """Options with the names of sizes of the package's components."""

    def __init__(
        self,
        dim: int,
        *,
        width: int = 4,
        window: int = 300,
        rank: int = 1,
        count: int = 7,
        heads: int = 2,
        experts: int = 1,
    ):
        super().__init__()
        self.up, self.down = nn.Linear(dim, width), nn.Linear(width, dim)

    def forward(self, x, tokens):
        return self.down(self.up(x).relu()), {}


def test_a_users_component_is_checked_with_its_own_defaults():
    with registered(FFNS, Sized):
        tried, defaults = trials("ffn", "broken"), FFNS.defaults("broken")
    assert len(tried) == len(COMPANIONS)
    assert all(trial.config["ffn"] == trial.node == defaults for trial in tried)
    assert defaults["width"] == 4
    assert not any(trial.faults for trial in tried)


class WithVariants(Sized):
    variants = [{}, {"width": 9}, {"window": 5, "rank": 2}]


def test_a_users_component_is_checked_with_its_variants():
    with registered(FFNS, WithVariants):
        tried, defaults = trials("ffn", "broken"), FFNS.defaults("broken")
    sets = [defaults | variant for variant in WithVariants.variants]
    assert [trial.node for trial in tried[:3]] == sets
    assert all(trial.node in sets for trial in tried)


class Flagged(Sized):
    def __init__(self, dim: int, *, flag: bool = False):
        super().__init__(dim)


def test_each_other_value_of_an_option_with_few_values_is_tried():
    with registered(FFNS, Flagged):
        tried = trials("ffn", "broken")
        changes = [trial.changes.split() for trial in tried]
    assert [trial.node["flag"] for trial in tried] == [False, True] * 3 + [False]
    assert changes[0] == ["ffn=broken"]
    assert {"ffn=broken", "ffn.flag=true", "mask=sliding_window"} <= set(changes[1])


class RefusesFlag(Flagged):
    variants = [{}, {"width": 0}]

    def __init__(self, dim: int, *, flag: bool = False, width: int = 3):
        super().__init__(dim)

    @classmethod
    def check(cls, options, context):
        yield from at_least(options, width=1)
        if options.flag:
            yield Fault("flag", "is not written yet", got="true")


def test_option_sets_that_are_refused_are_listed_and_a_declared_one_is_broken(monkeypatch):
    with registered(FFNS, RefusesFlag):
        tried = trials("ffn", "broken")
        monkeypatch.setattr(checking, "trials", lambda *_: tried)
        monkeypatch.setattr(checking, "LAWS", {})
        results = check_component("ffn", "broken").results
    widths = [trial.node["width"] for trial in tried]
    assert [bool(trial.faults) for trial in tried] == [width == 0 for width in widths[:-1]] + [True]
    assert str(tried[-1].faults[0]) == "ffn.flag: is not written yet; got true."
    [result] = results
    assert result.sentence == (
        "option set 2 of 2 is always refused: ffn.width: must be at least 1; got 0."
    )


class EightHeads(MultiHead):
    """Its default does not divide the channels of a tiny model."""

    def __init__(self, dim, norm, kernel, *, shape: HeadShape = EIGHT_HEADS):
        super().__init__(dim, norm, kernel, shape=shape)


def test_a_default_that_does_not_fit_changes_the_model_and_the_note_says_so():
    with registered(ATTENTIONS, EightHeads):
        tried = trials("attn", "broken")
        dim = tried[0].config["model"]["dim"]
        note = size_note("attn", "broken", dim)
    assert all(trial.node["heads"] == 8 and not trial.faults for trial in tried)
    assert dim == 48
    assert note.startswith(
        f"In models of model.dim=48, not {DIM}, where its options are refused:"
        " attn.heads: must divide model.dim; got 8 and 36."
    )
    assert size_note("attn", "multi_head", DIM) == ""


class OnlyCausal(Sized):
    def __init__(self, dim: int):
        super().__init__(dim)

    @classmethod
    def cannot(cls, options, context):
        if context.mask.sees_future:
            yield Fault("", "works only with causal masks")


def test_a_refused_composition_has_its_reason():
    with registered(FFNS, OnlyCausal):
        tried = trials("ffn", "broken")
    refused = [i for i, trial in enumerate(tried, 1) if trial.faults]
    assert refused == [4, 6, 7]
    assert str(tried[3].faults[0]) == "ffn: works only with causal masks."
    # Only the encoder sees later tokens.
    assert str(tried[6].faults[0]) == "model.encoder.ffn: works only with causal masks."


def test_each_size_is_an_option_of_a_component_of_the_package():
    options = {
        option
        for registry in KINDS.values()
        for name in registry
        for option in registry.options(name)
    }
    assert SIZES.keys() - options == set()


def test_a_value_that_the_first_layer_refuses_is_tried_in_every_second_layer():
    """Of 4: a layer that takes the keys of an earlier one."""
    of_keys = [trial for trial in trials("attn", "multi_head") if trial.node["keys"] == "earlier"]
    (trial,) = of_keys
    assert not trial.faults
    blocks = model_plan(trial.config).stacks[0].blocks
    attentions = [sub for block in blocks for sub in block.sublayers if sub.kind == "attn"]
    assert [sub.component["keys"] for sub in attentions] == ["own", "earlier"] * 2
