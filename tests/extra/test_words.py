"""Extras on the command line: faults with the path, the value and the fix; and what is printed."""

import pytest

from xformer_kit import ConfigError
from xformer_kit.config import compose, preflight
from xformer_kit.inspect.provenance import Provenance
from xformer_kit.plan import stacks


@pytest.mark.parametrize(
    ("word", "start", "end"),
    [
        ("extra=token_shift", "extra: must map names to options", " or extra.token_shift={}."),
        ("extra=[unet]", "extra: cannot be composed: Error merging", " Try extra.NAME={}."),
        ("extra.token_shft={}", "extra.token_shft: no extra is called", ", value_residual."),
        ("extra.unet=3", "extra.unet: must be a mapping of options", "; got 3."),
        ("extra.unet.wai=factor", "extra.unet.wai: extra 'unet' has no option", "It has: way."),
        # the keys of the model that extras have replaced, and other names of extras
        ("model.unet=factor", "model.unet: the config has no such key.", " Try extra.unet={}."),
        ("model.shift_tokens=1", "model.shift_tokens: the", " Try extra.token_shift={}."),
        ("model.future_tokens=4", "model.future_tokens: the", " Try extra.future_tokens={}."),
        ("drop_path=0.1", "drop_path: the config has", " Try extra.stochastic_depth={}."),
    ],
)
def test_a_fault_has_path_and_fix(word, start, end):
    with pytest.raises(ConfigError) as error:
        preflight([word])
    (fault,) = error.value.messages
    assert fault.startswith(start)
    assert fault.endswith(end)


def test_an_extra_that_is_null_is_left_out():
    assert compose(["extra.unet={}", "extra.token_shift=null"])["extra"] == {
        "unet": {"way": "factor"}
    }


def test_values_of_extras_are_listed_with_where_they_came_from():
    words = ["extra.token_shift.tokens=2", "extra.deep_embed={}", "extra.unet={}"]
    config = compose(words)
    given = dict(word.split("=", 1) for word in words)
    found = {v.path: v for v in Provenance(config, overrides=given).values(stacks(config))}
    assert found["extra.token_shift.tokens"][1:3] == (2, "command line")
    assert found["extra.deep_embed"][1:3] == ({}, "command line")
    assert found["extra.unet.way"][1:3] == ("factor", "default")
