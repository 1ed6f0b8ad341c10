"""Pictures show exactly the values that are plotted."""

import numpy as np
import pytest
import torch
from drawings import assert_ticks_are_exact

from xformer_kit.inspect import Picture, attention_weights, plot_attention, plot_bias, plot_mask
from xformer_kit.laws import tiny_config
from xformer_kit.laws.tiny_composition import build_tiny_model
from xformer_kit.mask import Causal, SlidingWindow
from xformer_kit.position import POSITIONS
from xformer_kit.registry import ConfigError
from xformer_kit.tensors.tokens import Tokens

HEADS = 6


def panels_of(picture):
    """Title of a panel -> its values."""
    return {
        axes.get_title(): axes.images[0].get_array() for axes in picture.figure.axes if axes.images
    }


def test_a_mask_by_eye():
    (cells,) = panels_of(plot_mask(SlidingWindow(window=2), 4)).values()
    assert cells.astype(int).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    (cells,) = panels_of(plot_mask({"name": "prefix"}, 4, prefix=2)).values()
    assert cells.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


def test_heads_that_differ_have_a_panel_each():
    mask = {
        "name": "per_head",
        "of": ["causal", {"name": "sliding_window", "window": 1}],
        "groups": [1, 2],
    }
    panels = panels_of(plot_mask(mask, 3, heads=3))
    assert [*panels] == ["head 0", "head 1", "head 2"]
    assert panels["head 0"].astype(int).tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert panels["head 2"].astype(int).tolist() == np.eye(3).tolist()


def test_equal_masks_of_a_model_are_plotted_once():
    variants = {"local": {"mask": {"name": "sliding_window", "window": 2}}}
    picture = plot_mask(
        build_tiny_model(
            tiny_config(layers=3, decoder={"pattern": ["base", "local"], "variants": variants})
        ),
        5,
    )
    first, second = (axes.images[0].get_array() for axes in picture.figure.axes)
    assert [axes.get_ylabel() for axes in picture.figure.axes] == [
        "decoder.0, 2.attn\ncausal\nquery",
        "decoder.1.attn\nsliding_window(window=2,\ncausal=True)\nquery",
    ]
    assert first.sum() == 15 and second.sum() == 9


@torch.no_grad()
def expected_bias(position, length, heads):
    slot = torch.arange(length)[None]
    tokens = Tokens(slot=slot, position=slot)
    head = torch.arange(heads).view(1, -1, 1, 1)
    return (
        position.prepare(tokens, tokens)
        .bias(tokens.as_query(), tokens.as_key(), head)
        .expand(1, heads, -1, -1)[0]
    )


@pytest.mark.parametrize(
    "name", [name for name, component in POSITIONS.items() if "bias" in component.enters]
)
def test_a_bias_is_drawn_as_the_model_has_it(name):
    model = build_tiny_model(tiny_config(position=name, layers=1))
    (position,) = model.decoder.position.values()
    expected = expected_bias(position, 7, HEADS)
    figure = plot_bias(model, 7).figure
    if "shift" in position.breaks:
        panels = [axes.images[0].get_array() for axes in figure.axes if axes.images][:HEADS]
        np.testing.assert_allclose(np.stack(panels), expected)
        return
    lines = [line for line in figure.axes[0].lines if line.get_label().startswith("head")]
    assert len(lines) == HEADS
    for line, values in zip(lines, expected, strict=True):
        assert line.get_xdata().tolist() == list(range(-6, 1))  # a causal mask shows no later keys
        np.testing.assert_allclose(line.get_ydata(), values[-1])


def test_later_keys_are_drawn_where_they_are_seen():
    line, *_ = plot_bias("alibi", 3, heads=1).figure.axes[0].lines
    slope = 2.0**-8
    assert line.get_xdata().tolist() == [-2, -1, 0, 1, 2]
    np.testing.assert_allclose(line.get_ydata(), [-2 * slope, -slope, 0, -slope, -2 * slope])


@pytest.mark.parametrize("length", [2, 3, 8])
def test_ticks_of_distances_are_whole_tokens(length):
    assert_ticks_are_exact(plot_bias("alibi", length, heads=1).figure, ["key - query, tokens"])


def test_attention_weights_as_they_are():
    ids = torch.arange(10).view(2, 5)
    weights = attention_weights(build_tiny_model(tiny_config()), ids, heads=[4, 1])
    picture = plot_attention(weights, list("ab c\n"), row=1, heads=[4, 1])
    panels = [axes.images[0].get_array() for axes in picture.figure.axes if axes.images][:4]
    np.testing.assert_array_equal(np.stack(panels), torch.cat([w[1] for w in weights.values()]))
    assert [axes.get_title() for axes in picture.figure.axes[:4]] == ["head 4", "head 1"] * 2
    assert [label.get_text() for label in picture.figure.axes[2].get_xticklabels()] == [
        "a",
        "b",
        "␣",
        "c",
        "⏎",
    ]


def test_cross_attention_has_the_names_of_both_texts():
    model = build_tiny_model(tiny_config(model="encoder_decoder", mask="causal", layers=1))
    weights = attention_weights(
        model, source=torch.tensor([[1, 2, 3]]), target=torch.tensor([[4, 5]])
    )
    assert {name: tuple(w.shape) for name, w in weights.items()} == {
        "encoder.0.attn": (1, 6, 3, 3),
        "decoder.0.attn": (1, 6, 2, 2),
        "decoder.0.cross": (1, 6, 2, 3),
    }
    first = {name: found[:, :1] for name, found in weights.items()}
    every = plot_attention(first, ["x", "y"], source=["a", "b", "c"]).figure.axes
    under = [[label.get_text() for label in axes.get_xticklabels()] for axes in every]
    assert under[:3] == [["a", "b", "c"], ["x", "y"], ["a", "b", "c"]]
    cross = {"decoder.0.cross": weights["decoder.0.cross"][:, :1]}
    axes, _ = plot_attention(cross, ["x", "y"], source=["a", "b", "c"]).figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_file_has_the_same_bytes_each_time(kind, tmp_path):
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]
    one, two = (
        plot_mask(Causal(), 5).save(tmp_path / f"{i}.{kind}").read_bytes() for i in range(2)
    )
    assert one == two and one.startswith(magic)


def test_a_notebook_shows_it():
    picture = plot_mask("causal", 5)
    assert isinstance(picture, Picture) and picture._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("plot", "fault"),
    [
        (lambda: plot_mask("casual"), "mask: no mask is called 'casual'. Did you mean 'causal'?"),
        (
            lambda: plot_mask({"name": "sliding_window", "window": 0}),
            "mask.window: must be at least 1 token; got 0.",
        ),
        (
            lambda: plot_bias("rotary"),
            "position: 'rotary' adds no bias to scores. Those that do: alibi, ",
        ),
        (
            lambda: plot_bias("t5"),
            "position: 't5' learns its bias. Give a model with it, or its own, such as ",
        ),
        (
            lambda: plot_bias(build_tiny_model(tiny_config())),
            "position: none of the model's adds a bias to scores. Those that do: alibi, ",
        ),
        (
            lambda: plot_mask("causal").save("mask.jpg"),
            "mask.jpg: must end in one of .png, .svg, .pdf; got '.jpg'. Try mask.png.",
        ),
        (
            lambda: plot_mask("causal").save("nowhere/at/all.png"),
            "nowhere/at/all.png: cannot be written: No such file",
        ),
    ],
)
def test_faults(plot, fault):
    with pytest.raises(ConfigError) as caught:
        plot()
    assert fault in str(caught.value)
