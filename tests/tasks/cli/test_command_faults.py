"""Invalid arguments of the xformer command: one message each, with the fix."""

from importlib import metadata

import pytest

from tasks.cli import main
from tests.tasks.command_lines import fault, output


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["component"],
            "xformer: no command is called 'component'. Did you mean 'components'? Known: ",
        ),
        (
            ["components", "atn"],
            "components: no kind is called 'atn'. Did you mean 'attn'? Known: attn, mask,",
        ),
        (["resume", "x"], "xformer: no command is called 'resume'. Known: train, new, "),
        (["find_lr"], "xformer: no command is called 'find_lr'. Did you mean 'find-lr'? Known: "),
        (["components", "attn.gqaa"], "attn: no attn is called 'gqaa'. Did you mean 'gqa'? Known"),
        (["components", "attn", "mha"], "attn: 'mha' is called 'multi_head' here."),
        (
            ["components", "--components", "none.py"],
            "components: cannot read none.py: No such file or directory.",
        ),
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
        (
            ["describe", "extra={unet: {}, unet: {}}"],
            "extra: the key unet is given more than once; got extra={unet: {}, unet: {}}.",
        ),
        (["describe", "nowhere"], "nowhere: is no directory."),
        (
            ["describe", "tokenizer=char"],
            "model.vocab_size: is not known before tokenizer 'char' has read the text;",
        ),
        (
            ["evaluate"],
            "xformer evaluate: the following arguments are required: RUN. See xformer evaluate -",
        ),
        (
            ["generate", "some/run", "--top-k", "3"],
            "xformer generate: one of the arguments --prompt --input --interactive is required.",
        ),
        (
            ["score", "some/run"],
            "xformer score: one of the arguments --input is required. See xformer score --help.",
        ),
        (
            ["new"],
            "xformer new: the following arguments are required: PROJECT. See xformer new --help.",
        ),
        (["evaluate", "nowhere"], "nowhere: is no directory."),
        (
            ["sweep", "optim.lr=1,2", "--method", "worst"],
            "xformer sweep: --method: no choice is called 'worst'.",
        ),
        (
            ["generate", "x", "--prompt", "a", "--max-new-tokens", "b"],
            "xformer generate: argument --max-new-tokens: invalid int value: 'b'. See xformer gen",
        ),
        (["check", "none.py"], "components: cannot read none.py: No such file or directory."),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_invalid_arguments_have_one_message(capsys, words, answer):
    assert fault(capsys, *words).startswith(answer)


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
            "--t. Did you mean --temperature or --top-k or --top-p or --typical-p? See",
        ),
        (["generate", "x", "-temp", "5"], "-temp. Did you mean --temperature? See"),
        (["generate", "x", "--promt", "a"], "--promt. Did you mean --prompt? See"),
        (["generate", "x", "--prompt", "a", "--sede", "5"], "--sede. Did you mean --seed? See"),
        (["score", "x", "--ref", "y"], "--ref. Did you mean --reference? See xformer score"),
        (["describe", "--js"], "--js. Did you mean --json? See xformer describe"),
        (
            ["describe", "--component", "x.py", "attn.heads=2"],
            "--component. Did you mean --components? See xformer describe",
        ),
        (["plot", "mask", "--zzzz"], "--zzzz. See xformer plot"),
        (["generate", "x", "--prompts", "a"], "--prompts. Did you mean --prompt? See"),
        (["generate", "x", "--max-tokens", "5"], "--max-tokens. Did you mean --max-new-tokens?"),
        (["generate", "x", "--max_new_tokens=5"], "--max_new_tokens. Did you mean --max-new-t"),
        (["generate", "x", "--top_k", "5"], "--top_k. Did you mean --top-k? See"),
        (["evaluate", "--run", "x"], "--run. See xformer evaluate --help."),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_an_unknown_option_proposes_the_option_that_it_probably_means(capsys, words, answer):
    assert fault(capsys, *words).startswith(f"xformer {words[0]}: no option is called {answer}")


@pytest.mark.parametrize("command", ["describe", "explain", "diff", "plot mask", "plot bias"])
def test_a_model_too_large_for_any_machine_has_one_message(capsys, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "model.dim=4000000000"]) == 2
    sentence = (
        "model.dim: must be at most 100,000,000, or no machine holds the model; got 4000000000.\n"
    )
    assert capsys.readouterr() == ("", sentence)


def test_plot_bias_of_a_model_too_large_for_this_machine_has_one_message(
    capsys, tmp_path, monkeypatch
):
    """plot bias initializes the weights; plot mask does not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "xformer_kit.config.faults.size._memory", lambda trainer: (2**30, "this machine")
    )
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


def test_a_file_of_a_run_is_no_directory(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("outputs/a/config.yaml", "my/run/checkpoints/best.ckpt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    answer = "is no directory. Name a run's directory such as outputs/a."
    for words in ("evaluate", "reproduce", "plot attention --text a"):
        found = fault(capsys, *words.split(), "my/run/checkpoints/best.ckpt")
        assert found == f"my/run/checkpoints/best.ckpt: {answer}"


def test_a_second_argument_is_unexpected(capsys):
    assert fault(capsys, "evaluate", "run", "book.txt") == (
        "xformer evaluate: unexpected arguments: book.txt. Leave them out."
    )


def test_the_versions_are_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert f"torch {metadata.version('torch')}, lightning" in printed
    assert printed.startswith(f"xformer_kit {metadata.version('xformer_kit')}, ")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("generate x --prompt a --foo 1 --top 5 --foo=2", "--foo --top"),
        ("generate x --promt a --bar", "--promt --bar"),
        ("generate x --beam a --top-k 2 --foo", "--foo"),
        ("plot mask --layers 1 --length 0 --prefix -1", "--length: --prefix: --layers:"),
        ("find-lr --min -1 --max 0 --steps 1 --save no/a.png", "--min: --steps:"),
        ("find-lr attn.heads=7 ffn.x=1", "attn.heads: ffn.x:"),
        ("find-batch --max 0 --memory -1 --steps 0 attn.heads=7", "--max: --memory: --steps:"),
    ],
)
def test_all_wrong_options_are_named_at_once(capsys, words, named):
    code, out, err = output(capsys, *words.split())
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == len(named.split()), err
    for name in named.split():
        assert any(name in line for line in lines), (name, err)


def test_all_options_that_a_task_does_not_have_are_named_at_once(begin, capsys):
    _, run = begin("run", "trainer.max_steps=1")
    for words, named in (
        ("generate --input a --beam 2 --scores", "--input --beam --scores"),
        ("evaluate --reference a --beam 2 --field b", "--reference --beam --field"),
        ("evaluate --input a --reference a --beam 2", "--reference --beam"),
    ):
        command, *options = words.split()
        code, out, err = output(capsys, command, run, *options)
        assert (code, out) == (2, "")
        found = [line.partition(":")[0] for line in err.splitlines()]
        assert sorted(found) == sorted(named.split())
