"""The xformer command, as a user types it."""

import io
import json
import subprocess
import sys

import pytest
import torch

from tasks.cli import main
from tasks.cli.command import short, size
from xformer_kit import load
from xformer_kit.config import GROUPS, INNER, MANY

MINE = '''
from xformer_kit.attention import ATTENTIONS, MultiHead

@ATTENTIONS.register("mine", also_called=("my_own",))
class Mine(MultiHead):
    """softmax(knob * q k^T) v: scores that are turned up."""

    def __init__(
        self, dim: int, norm, kernel, *, heads: int = 4,
        knob: int = 1,  # factor on the scores
    ):
        super().__init__(dim, norm, kernel, heads=heads)
        self.scale *= knob
'''
TINY = ["model.dim=32", "model.layers=2", "attn.heads=4", "data.seq_len=16", "data.batch_size=2"]


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "my_parts.py"
    path.write_text(MINE)
    yield str(path)
    for registry in GROUPS.values():
        for module in {
            part.__module__
            for part in registry.values()
            if part.__module__.startswith("xformer_kit_parts")
        }:
            registry.forget(module)


@pytest.fixture
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


def said(capsys, *words):
    """(exit code, stdout, stderr) of a command line."""
    capsys.readouterr()
    try:
        code = main(words)
    except SystemExit as exit_:
        code = exit_.code
    out = capsys.readouterr()
    return code, out.out, out.err


def sentence(capsys, *words):
    """The one sentence of a fault, which ends with exit code 2 and prints nothing else."""
    code, out, err = said(capsys, *words)
    assert (code, out) == (2, "")
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    return err.strip()


OF_COMMANDS = [
    "parts",
    "describe",
    "evaluate",
    "generate",
    "check",
    "compare",
    "reproduce",
    "status",
    "report",
    "sweep",
]


@pytest.mark.parametrize(
    "words", [[], ["--help"], *([name, "--help"] for name in OF_COMMANDS)], ids=" ".join
)
def test_help_imports_no_torch(words):
    script = (
        f"import sys; from tasks.cli import main\ntry: main({words})\nexcept SystemExit as e:"
        " assert not e.code\n"
    )
    script += "assert 'torch' not in sys.modules and 'lightning' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage: xformer" in done.stdout
    assert "examples:" in done.stdout or words in ([], ["--help"])


def test_parts_lists_every_part(capsys, wide):
    _, out, _ = said(capsys, "parts")
    for registry in GROUPS.values():
        for name in registry:
            assert f" {name} " in out
    assert "softmax(mask(q k^T * scale)) v in each head" in out


def test_parts_of_a_kind_has_options_papers_and_other_names(capsys, wide):
    _, out, _ = said(capsys, "parts", "attn")
    assert "arXiv:1706.03762" in out
    assert "also called mha, gqa, mqa" in out
    row = next(line for line in out.splitlines() if "attn.kv_heads" in line)
    assert (
        " ".join(row.split()) == "attn.kv_heads int | null null key and value heads; null is heads"
    )


def test_parts_as_json(capsys):
    code, out, _ = said(capsys, "parts", "--json")
    table = json.loads(out)
    assert code == 0
    assert {kind: set(parts) for kind, parts in table.items()} == {
        group: set(registry) for group, registry in (GROUPS | INNER | MANY).items()
    }
    assert table["ffn"]["mlp"]["multiple_of"] == {"type": "int | null", "default": None}
    assert list(json.loads(said(capsys, "parts", "ffn", "glu", "--json")[1])["ffn"]) == ["glu"]


def test_parts_are_listed_by_the_words_of_a_command_line(capsys, wide):
    shown = [line.split()[0] for line in said(capsys, "parts")[1].splitlines() if line[:1].strip()]
    assert [word for word in shown if word not in ("The", "To")] == [*GROUPS, *INNER, *MANY]
    assert {"task", "data", "attn.score", "position.scaling", "ffn.router", "ffn.expert"} <= set(
        shown
    )
    assert "position.scaling.factor" in said(capsys, "parts", "position.scaling", "yarn")[1]


@pytest.mark.parametrize("words", [["task"], ["objective"], ["task", "language_modeling"]])
def test_a_kind_answers_to_both_of_its_names(capsys, words):
    assert "task=language_modeling" in said(capsys, "parts", *words)[1]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["pars"],
            "xformer: no command is called 'pars'. Did you mean 'parts'? Known: parts, describe, ",
        ),
        (
            ["parts", "atn"],
            "parts: no kind is called 'atn'. Did you mean 'attn'? Known: attn, mask,",
        ),
        (["parts", "attn", "mha"], "attn: 'mha' is called 'multi_head' here."),
        (["parts", "--parts", "none.py"], "parts: cannot read none.py: No such file or directory."),
        (
            ["describe", "attn.heads=7", "model.dim=384"],
            "attn.heads: must divide model.dim; got 7 and 384.",
        ),
        (
            ["describe", "model.layers=2", "model.layers=3"],
            "model.layers: is given more than once; got model.layers=2, ",
        ),
        (
            ["explain", "attn=linear", "attn=latent"],
            "attn: is given more than once; got attn=linear, attn=latent.",
        ),
        (
            ["plot", "mask", "position=t5", "position=none"],
            "position: is given more than once; got position=t5, ",
        ),
        (
            ["diff", "model.layers=2", "attn=linear attn=latent"],
            "B (attn=linear attn=latent): attn: is given more than",
        ),
        (["describe", "nowhere"], "nowhere: is no directory."),
        (
            ["describe", "tokenizer=char"],
            "model.vocab_size: is not known before tokenizer 'char' has read the text;",
        ),
        (["evaluate"], "xformer evaluate: the following arguments are required: RUN."),
        (["evaluate", "nowhere"], "nowhere: is no directory."),
        (
            ["evaluate", "x", "--checkpoint", "worst"],
            "xformer evaluate: --checkpoint: no choice is called 'worst'.",
        ),
        (
            ["generate", "x", "--prompt", ""],
            "--prompt: must hold at least one character; got an empty text.",
        ),
        (
            ["generate", "x", "--prompt", "a", "--max-new-tokens", "b"],
            "xformer generate: --max-new-tokens: must be",
        ),
        (["check", "none.py"], "parts: cannot read none.py: No such file or directory."),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_bad_input_is_answered_with_one_sentence(capsys, words, answer):
    assert sentence(capsys, *words).startswith(answer)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["generate", "x", "--prompt", "a", "--temp", "0.5"],
            "--temp. Did you mean --temperature? See xformer generate",
        ),
        (
            ["generate", "x", "--temp=0.5"],
            "--temp. Did you mean --temperature? See xformer generate",
        ),
        (
            ["generate", "x", "--prompt", "a", "--top", "5"],
            "--top. Did you mean --top-k or --top-p? See",
        ),
        (
            ["generate", "x", "--t", "5"],
            "--t. Did you mean --temperature, --top-k, --top-p or --typical-p? See",
        ),
        (["generate", "x", "-temp", "5"], "-temp. Did you mean --temperature? See"),
        (["generate", "x", "--promt", "a"], "--promt. Did you mean --prompt? See"),
        (["generate", "x", "--prompt", "a", "--sede", "5"], "--sede. Did you mean --seed? See"),
        (["score", "x", "--ref", "y"], "--ref. Did you mean --reference? See xformer score"),
        (["describe", "--js"], "--js. Did you mean --json? See xformer describe"),
        (
            ["describe", "--part", "x.py", "attn.heads=2"],
            "--part. Did you mean --parts? See xformer describe",
        ),
        (["plot", "mask", "--zzzz"], "--zzzz. See xformer plot"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_an_unknown_option_proposes_those_that_it_begins_and_else_the_likest(capsys, words, answer):
    assert sentence(capsys, *words).startswith(f"xformer {words[0]}: no option is called {answer}")


def test_describe_counts_what_a_model_has(capsys):
    code, out, _ = said(capsys, "describe", *TINY, "attn.kv_heads=2", "--json")
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
    _, out, _ = said(
        capsys,
        "describe",
        *TINY,
        "model.decoder.pattern=[base,far]",
        "model.decoder.variants.far={mask: {name: sliding_window, window: 4}, ffn: mlp}",
    )
    assert max(map(len, out.splitlines())) <= int(columns)
    for heading in (
        "parameters",
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


@pytest.mark.parametrize("command", ["describe", "explain", "diff", "plot mask", "plot bias"])
def test_a_size_beyond_any_machine_is_one_sentence(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "model.dim=4000000000"]) == 2
    said = (
        "model.dim: must be at most 100,000,000, or no machine holds the model; got 4000000000.\n"
    )
    assert capsys.readouterr() == ("", said)


def test_a_bias_of_a_model_beyond_this_machine_is_one_sentence(capsys, tmp_path, monkeypatch):
    """Its weights are drawn, unlike those of a mask."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("xformer_kit.config.size._memory", lambda trainer: (2**30, "this machine"))
    assert (
        main(
            ["plot", "bias", "position=t5", "model.dim=25600", "attn.heads=160", "model.layers=128"]
        )
        == 2
    )
    out, err = capsys.readouterr()
    assert (
        out == ""
        and err.startswith("model: its weights need about 3,750 GiB, and")
        and err.count("\n") == 1
    )


def test_describe_needs_no_text(capsys):
    assert said(capsys, "describe", "data=text", *TINY)[0] == 0


def test_a_part_of_ones_own(capsys, mine, wide):
    code, out, _ = said(capsys, "parts", "attn", "mine", "--parts", mine)
    assert code == 0
    assert "attn.knob" in out
    assert "factor on the scores" in out
    code, out, _ = said(capsys, "describe", "attn=mine", "--parts", mine, "attn.knob=3", *TINY[:2])
    assert code == 0
    assert "mine knob=3, 4 heads of 8" in out


def test_check_finds_what_a_part_breaks(capsys, mine, tmp_path, wide):
    code, out, _ = said(capsys, "check", mine)
    assert (code, "0 broken" in out) == (0, True)
    broken = tmp_path / "broken.py"
    broken.write_text(
        MINE.replace('"mine"', '"leaky"').replace("my_own", "drip")
        + """
    def forward(self, x, source, view, cache=None):
        return super().forward(x, source, view, cache) + x.mean(1, keepdim=True)
"""
    )
    code, out, _ = said(capsys, "check", str(broken))
    assert code == 1
    assert "BROKEN" in out
    assert "causality" in out


@pytest.fixture
def finished(begin):
    """A run of four steps, whose positions end at 48 tokens."""
    code, run = begin(
        "run", "trainer.max_steps=4", "trainer.val_every=2", "position=learned", "model.max_len=48"
    )
    assert code == 0
    return run


def test_evaluate_says_what_the_run_said(capsys, finished):
    code, out, _ = said(capsys, "evaluate", str(finished), "--json")
    found, summary = json.loads(out), json.loads((finished / "summary.json").read_text())
    assert code == 0
    for name in ("val/loss", "val/perplexity", "val/bits_per_byte"):
        assert found[name] == pytest.approx(summary[name], rel=1e-6)
    other = json.loads(said(capsys, "evaluate", str(finished), "--batch-size", "1", "--json")[1])
    assert other["val/loss"] == pytest.approx(found["val/loss"], rel=1e-5)
    assert "nats per token" in said(capsys, "evaluate", str(finished), "--checkpoint", "best")[1]


def test_describe_a_run(capsys, finished):
    found = json.loads(said(capsys, "describe", str(finished), "--json")[1])
    summary = json.loads((finished / "summary.json").read_text())
    assert found["parameters"] == summary["params"]
    assert found["vocab_size"] == 256
    assert {v["path"]: v["origin"] for v in found["values"]}["model.dim"] == "config.yaml"


def written(capfdbinary, *words):
    capfdbinary.readouterr()
    assert main(words) == 0
    return capfdbinary.readouterr().out


def test_generate_is_what_the_model_generates(capfdbinary, finished):
    words = ("generate", str(finished), "--prompt", "the cat", "--max-new-tokens", "20")
    greedy = written(capfdbinary, *words, "--temperature", "0")
    model = load(finished)
    ids = torch.tensor([list(b"the cat")])
    expected = model.tokenizer.decode(
        model.generate(ids, max_new_tokens=20, temperature=0.0)[0].tolist()
    )
    assert greedy.decode() == expected + "\n"
    drawn = [written(capfdbinary, *words, "--seed", seed) for seed in ("1", "1", "2")]
    assert drawn[0] == drawn[1] != drawn[2]


def test_generate_reads_stdin_and_draws_several(capfdbinary, finished, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("schön\n".encode())))
    words = ("--max-new-tokens", "5", "--num-samples", "2", "--seed", "3")
    texts = written(capfdbinary, "generate", str(finished), "--prompt", "-", *words).split(
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
            "--beam: is not for a run of task=language_modeling, which goes on with a text.",
        ),
        (
            ["--prompt", "x", "--min-new-tokens", "4"],
            "--min-new-tokens: is not for a run of task=language_modeling",
        ),
        (
            ["--input", "x"],
            (
                "--input: is not for a run of task=language_modeling, which goes on with a text."
                " Use --prompt."
            ),
        ),
        (
            ["--prompt", "x", "--top-k", "4", "--penalty-alpha", "0.6", "--temperature", "1"],
            "--temperature: shapes a draw, and --penalty-alpha 0.6 draws nothing; got 1.0.",
        ),
        (
            ["--prompt", "x", "--temperature", "0", "--num-samples", "2"],
            "--num-samples: nothing is drawn, so all texts are",
        ),
        (["--prompt", "x", "--temperature", "-1"], "--temperature: must be at least 0; got -1.0."),
        (
            ["--prompt", "x", "--checkpoint", "best", "--top-p", "2"],
            "--top-p: must be above 0 and at most 1; got 2.0.",
        ),
    ],
)
def test_generate_refuses_what_it_cannot(capsys, finished, words, answer):
    assert sentence(capsys, "generate", str(finished), *words).startswith(answer)


def test_a_character_that_the_tokenizer_does_not_know(capsys, begin):
    _, run = begin("char", "trainer.max_steps=2", "tokenizer=char")
    answer = sentence(capsys, "generate", str(run), "--prompt", "Ü")
    assert answer.startswith("--prompt: the alphabet of 'char' is")
    assert "(U+00DC)" in answer


def test_a_damaged_checkpoint_and_missing_parts(capsys, finished):
    (finished / "parts.json").write_text(json.dumps({"my_parts.py": "0" * 64}))
    assert sentence(capsys, "evaluate", str(finished)).endswith(
        "trust under that name: --parts FILE."
    )
    (finished / "parts.json").unlink()
    last, previous, best = (
        finished / "checkpoints" / f"{name}.ckpt" for name in ("last", "previous", "best")
    )
    last.write_bytes(last.read_bytes()[:1000])
    answer = sentence(capsys, "evaluate", str(finished), "--checkpoint", "last")
    assert f"{last}: is damaged (1,000 bytes" in answer
    assert answer.endswith("Try --checkpoint previous or best.")
    code, out, err = said(capsys, "evaluate", str(finished), "--json")
    assert (code, json.loads(out)["checkpoint"]) == (0, "previous")
    assert err.startswith(f"{last}: is damaged")
    assert err.endswith("Taken instead: previous.\n")
    best.write_bytes(b"")
    code, out, err = said(
        capsys, "generate", str(finished), "--prompt", "the ", "--max-new-tokens", "3"
    )
    assert (code, out[:4]) == (0, "the ")
    assert err.endswith("Taken instead: previous.\n")
    previous.write_bytes(b"")
    assert "No other checkpoint is whole" in sentence(capsys, "evaluate", str(finished))
    last.unlink()
    assert "has no checkpoint 'last'. It has: best, previous" in sentence(
        capsys, "evaluate", str(finished), "--checkpoint", "last"
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (987, "987"),
        (1_000, "1.00 K"),
        (12_345, "12.3 K"),
        (999_600, "1.00 M"),
        (4_560_000_000, "4.56 G"),
    ],
)
def test_numbers_with_units(number, text):
    assert short(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(512, "512 B"), (1536, "1.50 KiB"), (604 * 2**20, "604 MiB")]
)
def test_bytes_with_units(number, text):
    assert size(number) == text
