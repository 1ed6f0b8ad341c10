"""xformer evaluate and generate, on a run of four steps."""

import io
import json
import sys

import pytest
import torch

from tasks.cli import main
from tests.tasks.command_lines import fault, output
from xformer_kit import load


def test_evaluate_gives_the_metrics_of_the_run(capsys, finished):
    code, out, _ = output(capsys, "evaluate", str(finished), "--json")
    found, summary = json.loads(out), json.loads((finished / "summary.json").read_text())
    assert code == 0
    for name in ("val/loss", "val/perplexity", "val/bits_per_byte", "val/accuracy"):
        assert found[name] == pytest.approx(summary[name], rel=1e-6)
    other = json.loads(output(capsys, "evaluate", str(finished), "--batch-size", "1", "--json")[1])
    assert other["val/loss"] == pytest.approx(found["val/loss"], rel=1e-5)
    assert "nats per token" in output(capsys, "evaluate", str(finished), "--checkpoint", "best")[1]


def generated(capfdbinary, *words):
    """Returns the bytes on stdout of a command."""
    capfdbinary.readouterr()
    assert main(words) == 0
    return capfdbinary.readouterr().out


def test_generate_prints_what_the_model_generates(capfdbinary, finished):
    words = ("generate", str(finished), "--prompt", "the cat", "--max-new-tokens", "20")
    greedy = generated(capfdbinary, *words, "--temperature", "0")
    model = load(finished)
    ids = torch.tensor([list(b"the cat")])
    expected = model.tokenizer.decode(
        model.generate(ids, max_new_tokens=20, temperature=0.0)[0].tolist()
    )
    assert greedy.decode() == expected + "\n"
    drawn = [generated(capfdbinary, *words, "--seed", seed) for seed in ("1", "1", "2")]
    assert drawn[0] == drawn[1] != drawn[2]


def test_generate_reads_stdin_and_draws_several(capfdbinary, finished, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("schön\n".encode())))
    words = ("--max-new-tokens", "5", "--num-samples", "2", "--seed", "3")
    texts = generated(capfdbinary, "generate", str(finished), "--prompt", "-", *words).split(
        b"--------\n"
    )
    assert len(texts) == 2
    assert all(text.startswith("schön".encode()) for text in texts)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["--prompt", "x" * 50],
            "--max-new-tokens: the model's positions end at 48 tokens (model.max_len), the",
        ),
        (
            ["--prompt", "x", "--max-new-tokens", "0"],
            "--max-new-tokens: must be at least 1; got 0.",
        ),
        (
            ["--prompt", "x", "--beam", "4"],
            "--beam: is not for a run of task=language_modeling, which continues a text.",
        ),
        (
            ["--prompt", "x", "--length-penalty", "0"],  # 0 is an option that is set
            "--length-penalty: is not for a run of task=language_modeling",
        ),
        (
            ["--prompt", "x", "--min-new-tokens", "4"],
            "--min-new-tokens: is not for a run of task=language_modeling",
        ),
        (
            ["--input", "x"],
            (
                "--input: is not for a run of task=language_modeling, which continues a text."
                " Use --prompt TEXT"
            ),
        ),
        (
            ["--prompt", "x", "--top-k", "4", "--penalty-alpha", "0.6", "--temperature", "1"],
            "--temperature: has no effect with penalty_alpha=0.6; got 1.0. Leave it out.",
        ),
        (
            ["--prompt", "x", "--temperature", "0", "--num-samples", "2"],
            "--num-samples: nothing is drawn, so all texts are",
        ),
        (
            ["--prompt", "x", "--top-k", "0"],
            "--top-k: must be at least 1; got 0.",
        ),
        (["--prompt", "x", "--temperature", "-1"], "--temperature: must be at least 0; got -1.0."),
        (
            ["--prompt", "x", "--checkpoint", "best", "--top-p", "2"],
            "--top-p: must be above 0 and at most 1; got 2.0.",
        ),
    ],
)
def test_invalid_options_of_generate_have_one_message(capsys, finished, words, answer):
    assert fault(capsys, "generate", str(finished), *words).startswith(answer)


def test_a_prompt_with_a_character_unknown_to_the_tokenizer_is_refused(capsys, begin):
    _, run = begin("char", "trainer.max_steps=2", "tokenizer=char")
    answer = fault(capsys, "generate", str(run), "--prompt", "Ü")
    assert answer.startswith("--prompt: the alphabet of 'char' is")
    assert "(U+00DC)" in answer


def test_a_kept_step_is_loaded_by_its_number(capsys, begin):
    _, run = begin("kept", "checkpoints.keep_every=8", "trainer.val_every=20")
    for name in ("8", "16", "last"):
        code, out, _ = output(capsys, "evaluate", str(run), "--checkpoint", name, "--json")
        assert (code, json.loads(out)["checkpoint"]) == (0, name)
    for name in ("15", "bset"):
        assert fault(capsys, "evaluate", str(run), "--checkpoint", name) == (
            f"--checkpoint: {run} has no checkpoint '{name}'. It has: best, last, previous, 16, 8."
        )


def test_a_damaged_checkpoint_is_replaced_and_missing_components_are_refused(capsys, finished):
    (finished / "components.json").write_text(json.dumps({"my_components.py": "0" * 64}))
    assert fault(capsys, "evaluate", str(finished)).endswith(
        "trust under that name: --components FILE."
    )
    (finished / "components.json").unlink()
    last, previous, best = (
        finished / "checkpoints" / f"{name}.ckpt" for name in ("last", "previous", "best")
    )
    last.write_bytes(last.read_bytes()[:1000])
    answer = fault(capsys, "evaluate", str(finished), "--checkpoint", "last")
    assert f"{last}: is damaged (1,000 bytes" in answer
    assert answer.endswith("Without --checkpoint, another is taken.")
    code, out, err = output(capsys, "evaluate", str(finished), "--json")
    assert (code, json.loads(out)["checkpoint"]) == (0, "previous")
    assert err.startswith(f"{last}: is damaged")
    assert err.endswith("Used instead: previous.\n")
    best.write_bytes(b"")
    code, out, err = output(
        capsys, "generate", str(finished), "--prompt", "the ", "--max-new-tokens", "3"
    )
    assert (code, out[:4]) == (0, "the ")
    assert err.endswith("Used instead: previous.\n")
    previous.write_bytes(b"")
    code, out, err = output(capsys, "evaluate", str(finished))
    assert (code, out, err.count("is damaged"), err.count("Train it again.")) == (2, "", 3, 3)
    last.unlink()
    assert "has no checkpoint 'last'. It has: best, previous" in fault(
        capsys, "evaluate", str(finished), "--checkpoint", "last"
    )


def test_each_line_that_is_typed_is_a_prompt_by_itself(capfdbinary, finished, monkeypatch):
    words = ("generate", str(finished), "--max-new-tokens", "5", "--seed", "3")
    one_by_one = [generated(capfdbinary, *words, "--prompt", text) for text in ("ab", " cd")]
    monkeypatch.setattr(sys, "stdin", io.StringIO("ab\n\n cd\n"))
    assert generated(capfdbinary, *words, "--interactive") == b"".join(one_by_one)


def test_a_prompt_that_is_refused_does_not_end_the_conversation(capfd, finished, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("x" * 60 + "\nab\n"))
    capfd.readouterr()
    assert main(("generate", str(finished), "--interactive", "--max-new-tokens", "5")) == 0
    out, err = capfd.readouterr()
    assert out.startswith("ab") and "the prompt has 60" in err


def test_an_output_file_is_not_for_prompts_that_are_typed(capsys, finished, tmp_path):
    words = ("--interactive", "--output", str(tmp_path / "x"))
    assert fault(capsys, "generate", str(finished), *words).startswith("--output: is for --prompt")
