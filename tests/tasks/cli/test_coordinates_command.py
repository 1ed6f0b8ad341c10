"""xformer coordinates: the table, the picture, the exit code, and its faults."""

import pytest

from tests.tasks.command_lines import fault, output

SMALL = ["model.layers=1", "attn.heads=4", "model.tie_embeddings=false"]
LINE = [*SMALL, "--widths", "256,64,128", "--steps", "3"]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ["model.parametrization=mup", "model.base_dim=64"],
            0,
            "It holds: no change differs by more than 10 % per doubling of the width.",
        ),
        (
            [],
            1,
            "It does not hold: the change depends on the width in decoder.0.attn, decoder.0.ffn,"
            " logits.",
        ),
    ],
)
def test_the_exit_code_says_whether_changes_depend_on_the_width(
    capsys, tmp_path, words, code, sentence
):
    image = pytest.importorskip("matplotlib.image")
    file = tmp_path / "changes.png"
    found, out, err = output(capsys, "coordinates", *words, *LINE, "--save", str(file))
    assert (found, err) == (code, "")
    head, *rows = [line.split() for line in out.splitlines()[:4]]
    assert head == ["change", "of", "64", "128", "256", "exponent"]
    assert [row[0] for row in rows] == ["decoder.0.attn", "decoder.0.ffn", "logits"]
    assert out.splitlines()[-1] == sentence
    assert image.imread(file).std() > 0.05  # something is drawn


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--widths", "64"],
            "--widths: must be at least two values of model.dim; got 64. Try 64,128,256.",
        ),
        (["--steps", "0"], "--steps: must be at least 1; got 0."),
        (
            ["optim=sgd", "model.parametrization=mup", "model.base_dim=64"],
            "optim: has no rule for the rates of model.parametrization=mup; got sgd. Choose one"
            " of adamw, adam, muon, adamw_8bit, lion, schedule_free.",
        ),
    ],
)
def test_faults(capsys, tmp_path, monkeypatch, words, sentence):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert fault(capsys, "coordinates", *SMALL, *words) == sentence
