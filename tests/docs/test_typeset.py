"""Formulas as one types them become formulas as one reads them, and words stay words."""

import pytest

from docs.config_uses import components_in
from docs.typeset import paragraphs, typeset


def plain(text: str) -> str:
    return typeset(text, lambda word: f"{word}.html" if word == "attn=linear" else None)


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("q k^T * scale", "q k<sup>T</sup> · scale"),
        ("S_{t-1} + beta_t k_t^T", "S<sub>t-1</sub> + β<sub>t</sub> k<sub>t</sub><sup>T</sup>"),
        ("sum_j gamma^(i - j) v_j", "Σ<sub>j</sub> γ<sup>i − j</sup> v<sub>j</sub>"),
        ("x / sqrt(head_dim)", "x / √(head_dim)"),
        ("theta^(-2i / r)", "θ<sup>-2i / r</sup>"),
        (
            "[s_j - tau]_+^(1 / (alpha - 1))",
            "[s<sub>j</sub> − τ]<sub>+</sub><sup>1 / (α − 1)</sup>",
        ),
        ("|q_i|_c and K~^T and k'", "|q<sub>i</sub>|<sub>c</sub> and K\u0303<sup>T</sup> and k'"),
        (
            "head_dim, kv_heads, max_len, q_rank, top_k, log_rate, my_components.py",
            None,
        ),  # names of options stay
        ("x-transformers, log-sigmoids, 1e-5, alpha_init", None),
        ("<x, y> & z", "&lt;x, y&gt; &amp; z"),
        ("`a_i * b`", '<code class="docutils literal">a_i * b</code>'),
        (
            "use attn=linear.",
            'use <a href="attn=linear.html"><code class="docutils literal">attn=linear</code></a>.',
        ),
        ("arXiv:1706.03762.", '<a href="https://arxiv.org/abs/1706.03762">arXiv:1706.03762</a>.'),
        ("(https://a.org/b_c).", '(<a href="https://a.org/b_c">https://a.org/b_c</a>).'),
    ],
)
def test_a_formula_is_set(typed, read):
    assert plain(typed) == (typed if read is None else read)


def test_lines_that_explain_an_option_begin_anew():
    said = paragraphs(
        "One\nsentence.\n\nscale: factor,\nand more.\nother: no option.",
        lambda word: None,
        {"scale"},
    )
    assert said == ["One sentence.", "scale: factor, and more. other: no option."]
    said = paragraphs("First.\nscale: factor.", lambda word: None, {"scale"})
    assert said == ["First.<br>scale: factor."]


@pytest.mark.parametrize(
    ("node", "components"),
    [
        (
            {"defaults": [{"override /mask": "full"}, {"/attn": "linear"}, "_self_"]},
            ["mask full", "attn linear"],
        ),
        ({"attn": {"heads": 4, "score": {"name": "entmax"}}}, ["attn.score entmax"]),
        (
            {"decoder": {"mask": {"name": "all_of", "of": ["causal", "chunked"]}}},
            ["mask all_of", "mask causal", "mask chunked"],
        ),
        (
            {"study": {"factors": {"placement": ["post", "deepnorm"]}}},
            ["placement post", "placement deepnorm"],
        ),
        (
            {"factors": {"network": {"geglu": {"ffn": "glu", "ffn.activation": "gelu"}}}},
            ["ffn glu"],
        ),
        ({"parameters": {"norm": {"values": ["rms"]}}}, ["norm rms"]),
        ({"expect": "placement=post"}, ["placement post"]),
        ({"question": "Does full attention help?", "mask": {"window": 4}, "norm": "unknown"}, []),
    ],
)
def test_a_config_names_its_components(node, components):
    assert [" ".join(component) for component in components_in(node, ())] == components
