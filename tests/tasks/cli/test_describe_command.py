"""xformer describe: parameters, FLOPs, memory and values of a config or a run."""

import json

import pytest

from tests.tasks.command_lines import TINY, output

TWO_STACKS = ["model=encoder_decoder", "task=seq2seq", "data=scan", "model.vocab_size=64"]


def test_describe_counts_parameters_and_flops(capsys):
    code, out, _ = output(capsys, "describe", *TINY, "attn.kv_heads=2", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["parameters"] == found["tree"]["parameters"] > 256 * 32
    assert found["flops_per_token"]["training"] == 3 * found["flops_per_token"]["forward"]
    assert {
        "path": "attn.kv_heads",
        "value": 2,
        "origin": "command line",
        "variant": "base",
    } in found["values"]
    assert {
        "path": "mask",
        "value": "causal",
        "origin": "model=decoder",
        "variant": "base",
    } in found["values"]


@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_page_of_describe_fits_the_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    _, out, _ = output(
        capsys,
        "describe",
        *TINY,
        "model.decoder.pattern=[base,far]",
        "model.decoder.variants.far={mask: {name: sliding_window, window: 4}, ffn: mlp}",
    )
    assert max(map(len, out.splitlines())) <= int(columns)
    for heading in (
        "parameters",
        "Length of the run",
        "FLOPs per token",
        "Memory of training",
        "Cache for generation",
        "Kernels",
        "Values",
    ):
        assert heading in out
    assert "activations, saved for backward" in out
    assert "├─ 0" in out
    assert "model.decoder.variants.far" in out


@pytest.mark.parametrize("words", [TINY, [*TWO_STACKS, "model.dim=32", "data.seq_len=16"]])
def test_the_page_names_the_source_of_a_model_that_has_one(capsys, words):
    code, out, _ = output(capsys, "describe", *words)
    assert code == 0
    sentences = "with a source and a target of 16 tokens each", "with a source of as many tokens"
    page = " ".join(out.split())
    assert [sentence in page for sentence in sentences] == [words is not TINY] * 2


def test_describe_reads_no_data(capsys):
    assert output(capsys, "describe", "data=text", *TINY)[0] == 0


def test_describe_a_run(capsys, finished):
    found = json.loads(output(capsys, "describe", str(finished), "--json")[1])
    summary = json.loads((finished / "summary.json").read_text())
    assert found["parameters"] == summary["params"]
    assert found["vocab_size"] == 256
    assert {v["path"]: v["origin"] for v in found["values"]}["model.dim"] == "config.yaml"


def test_the_table_of_parameters_states_axes_and_facts(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    words = [*TINY, "attn.bias=true", "extra.deep_embed={}"]
    _, out, _ = output(capsys, "describe", *words, "--parameters")
    rows = {row[at]: row for row in map(str.split, out.splitlines()) for at in (0, 2) if row[at:]}
    assert rows["decoder.*.attn.o.weight"][-4:] == ["writes", "to", "the", "stream"]
    assert rows["decoder.*.attn.o.weight"][:2] == ["2", "x"]
    assert "its gradient may be zero" in " ".join(rows["decoder.*.attn.k.bias"])
    assert rows["embed.weight"][-4:] == ["embedding", "vocab", "x", "dim"]
    assert "no decay" in next(line for line in out.splitlines() if ".table.ffn.weight" in line)
    _, out, _ = output(capsys, "describe", *words, "--parameters", "--json")
    found = {row["name"]: row for row in json.loads(out)["parameter_table"]}
    assert found["decoder.*.attn.q.weight"]["axes"] == ["heads*head_dim", "dim"]
    assert found["decoder.*.attn.q.weight"]["number"] == 2


def test_without_the_flag_there_is_no_table_of_parameters(capsys):
    _, out, _ = output(capsys, "describe", *TINY)
    assert "decoder.norm.weight" not in out
