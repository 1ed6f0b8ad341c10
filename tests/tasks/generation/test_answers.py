"""A sequence-to-sequence run on files: answers, metrics against references, and scores."""

import json
import math

import pytest

from tasks.cli import main
from tasks.run.start import start_run
from xformer_kit import ConfigError, compose

TINY = [
    "task_defaults=null",
    "task=seq2seq",
    "model=encoder_decoder",
    "model.dim=16",
    "model.layers=1",
    "attn.heads=2",
    "data=tsv",
    "tokenizer=char",
    "data.seq_len=12",
    "task.decoded=4",
    "data.batch_size=8",
    "trainer.max_steps=4",
    "schedule.warmup=1",
    "logger=none",
    "trainer.accelerator=cpu",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"{a}{b}\t{b}{a}\n" for a in "abcdefgh" for b in "ijklmnopqrst"))
    config = compose([*TINY, f"data.path={pairs}", f"data.cache={folder}/cache"])
    assert start_run(config, folder / "run") == 0
    (folder / "in.txt").write_text("ai\nbj\nck\n")
    (folder / "right.txt").write_text("ia\njb\nkc\n")
    return folder


def said(capsys, *words):
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def with_references(capsys, command, folder):
    """The JSON of a command on the sources and the right answers of a run."""
    files = ["--input", folder / "in.txt", "--reference", folder / "right.txt"]
    return json.loads(said(capsys, command, folder / "run", *files, "--json"))


def test_a_file_gets_a_line_for_every_line_also_with_beams(trained, capsys):
    said(
        capsys,
        "generate",
        trained / "run",
        "--input",
        trained / "in.txt",
        "--output",
        trained / "out.txt",
    )
    assert len((trained / "out.txt").read_text().splitlines()) == 3
    greedy = said(capsys, "generate", trained / "run", "--input", trained / "in.txt")
    assert greedy == (trained / "out.txt").read_text()
    one = said(
        capsys,
        "generate",
        trained / "run",
        "--input",
        trained / "in.txt",
        "--beam",
        1,
        "--batch-size",
        1,
    )
    assert one == greedy
    assert (
        said(capsys, "generate", trained / "run", "--prompt", "ai").splitlines()[0]
        == greedy.splitlines()[0]
    )


def test_figures_against_references_are_those_of_sacrebleu(trained, capsys):
    sacrebleu = pytest.importorskip("sacrebleu")
    figures = with_references(capsys, "evaluate", trained)
    answers = said(
        capsys, "generate", trained / "run", "--input", trained / "in.txt", "--checkpoint", "last"
    ).splitlines()
    right = (trained / "right.txt").read_text().splitlines()
    assert figures["chrf"] == pytest.approx(sacrebleu.corpus_chrf(answers, [right]).score)
    assert figures["exact_match"] == sum(a == b for a, b in zip(answers, right, strict=True)) / 3
    assert figures["signature"].startswith("nrefs:1|case:mixed")


def test_a_score_is_the_likelihood_of_the_answer_and_its_end(trained, capsys):
    import torch

    from xformer_kit import load
    from xformer_kit.tensors.tokens import Tokens

    rows = with_references(capsys, "score", trained)
    model = load(trained / "run")
    encode, special = model.tokenizer.encode, model.tokenizer.special
    source = torch.tensor([[*map(int, encode("ai")), special("</s>")]])
    target = torch.tensor([[special("<s>"), *map(int, encode("ia")), special("</s>")]])
    hidden, _ = model.hidden(Tokens(ids=target[:, :-1]), source=Tokens(ids=source))
    expected = -model.head(hidden).log_softmax(-1).gather(-1, target[:, 1:, None]).sum().item()
    assert rows[0]["tokens"] == 3
    assert math.isclose(rows[0]["nats"], expected, rel_tol=1e-5)


def test_the_best_of_a_search_come_with_their_scores(trained, capsys):
    words = ["generate", trained / "run", "--prompt", "ai", "--beam", 4, "--num-samples", 3]
    texts = said(capsys, *words).splitlines()
    scored = [line.split("\t") for line in said(capsys, *words, "--scores").splitlines()]
    assert [text for _, text in scored] == texts
    assert len(texts) == 3
    values = [float(score) for score, _ in scored]
    assert values == sorted(values, reverse=True)


def test_a_sampled_answer_does_not_depend_on_its_batch(trained, capsys):
    words = [
        "generate",
        trained / "run",
        "--input",
        trained / "in.txt",
        "--temperature",
        2,
        "--seed",
        3,
    ]
    together = said(capsys, *words)
    assert said(capsys, *words, "--batch-size", 1) == together
    (trained / "second.txt").write_text("bj\n")
    words[3] = trained / "second.txt"
    words[-1] = 4  # line i of a file has the seed and i
    assert said(capsys, *words).splitlines()[0] == together.splitlines()[1]
    assert len({said(capsys, *words[:-1], seed) for seed in range(6)}) > 1


def test_a_prompt_has_the_answer_of_a_file_with_the_same_line(trained, capsys):
    (trained / "one.txt").write_text("ck\n")
    for more in (
        [],
        ["--constrain", "ab"],
        ["--constrain", "ab", "--min-new-tokens", 6],
        ["--top-k", 4, "--penalty-alpha", 0.6],
        ["--temperature", 2, "--seed", 1, "--max-new-tokens", 5],
    ):
        streamed = said(capsys, "generate", trained / "run", "--prompt", "ck", *more)
        one = said(capsys, "generate", trained / "run", "--input", trained / "one.txt", *more)
        assert streamed[:-1].replace("\n", " ") == one[:-1]  # one a line
        assert set(streamed.strip()) <= set("ab") or "--constrain" not in more
        assert len(streamed.strip()) >= 6 or "--min-new-tokens" not in more


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["generate", "RUN", "--input", "IN", "--num-samples", "3"],
            "--num-samples: must be at most beam, which is 1 by default, for texts that are not"
            " drawn; got 3 and 1.",
        ),
        (
            ["generate", "RUN", "--input", "IN", "--scores"],
            "--scores: are those of a beam search, and there is none. Add --beam 4",
        ),
        (
            ["generate", "RUN", "--input", "IN", "--beam", "2", "--top-p", "0.5"],
            "--top-p: has no effect with beam=2; got 0.5. Leave it out.",
        ),
        (
            ["generate", "RUN", "--input", "IN", "--penalty-alpha", "0.5"],
            "--penalty-alpha: chooses among the top_k likeliest tokens",
        ),
        (["generate", "RUN", "--prompt", "ai", "--constrain", "!"], "--constrain: "),
        (
            ["generate", "RUN", "--prompt", "ai", "--output", "nowhere/x"],
            "--output: must be a file that can be written; got",
        ),
        (["generate", "RUN", "--input", "IN", "--beam", "0"], "--beam: must be at least 1; got 0."),
        (
            ["evaluate", "RUN", "--input", "IN"],
            "--input: holds sources, whose answers are compared with --reference; got no --ref",
        ),
        (
            ["evaluate", "RUN", "--input", "IN", "--reference", "IN", "--field", "body"],
            "--field: has no effect on --input",
        ),
        (
            ["evaluate", "RUN", "--input", "IN", "--reference", "SHORT"],
            "--reference: must have a line for every source; got 1",
        ),
        (
            ["generate", "RUN", "--input", "BAD"],
            "--input: must be utf-8 text; got 'BAD' with byte 0xFF at position 1.",
        ),
        (["generate", "RUN", "--input", "LONG"], "--input, line 2: must have at most 11 tokens"),
        (
            ["score", "RUN", "--input", "IN"],
            "--input: a run of task=seq2seq needs --reference, the answers.",
        ),
    ],
)
def test_errors_of_answers_are_one_sentence(trained, capsys, words, sentence):
    (trained / "short.txt").write_text("ia\n")
    (trained / "bad.txt").write_bytes(b"a\xff")
    (trained / "long.txt").write_text("ai\n" + "a" * 20 + "\n")
    names = {
        "RUN": "run",
        "IN": "in.txt",
        "SHORT": "short.txt",
        "BAD": "bad.txt",
        "LONG": "long.txt",
    }
    assert main([str(trained / names[w]) if w in names else w for w in words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(sentence.replace("BAD", str(trained / "bad.txt")))
    assert err.count("\n") == 1


@pytest.fixture(scope="module")
def of_words(tmp_path_factory):
    """start(tokenizer words) -> a run on pairs of words, and the files of its answers."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "pairs.tsv").write_text(
        "".join(f"{a} {b}\t{b} {a}\n" for a in "abcdefgh" for b in "ijklmnopqrst")
    )
    (folder / "in.txt").write_text("a i\nzebra j yak\nb i\nyak 1 2 3 4\n")
    (folder / "right.txt").write_text("i a\nj wolf\ni b\ni\n")

    def start(*words: str):
        run_dir = folder / "_".join(words).replace("=", "_")
        if not run_dir.exists():
            given = [word for word in TINY if not word.startswith("tokenizer")]
            data = [f"data.path={folder}/pairs.tsv", f"data.cache={folder}/cache"]
            assert start_run(compose([*given, *words, *data]), run_dir) == 0
        return run_dir, folder

    return start


@pytest.mark.parametrize("tokenizer", ["word", "wordpiece"])
def test_unknown_words_are_named_once(of_words, capsys, tokenizer):
    run_dir, folder = of_words(f"tokenizer={tokenizer}")
    files, right = ["--input", f"{folder}/in.txt"], ["--reference", f"{folder}/right.txt"]
    sources = "--input: unknown words (6): 'zebra', 'yak', '1', '2', '3'\n"
    answers = "--reference: unknown words (1): 'wolf'\n"
    capsys.readouterr()
    for words, said in (
        (["generate", *files], sources),
        (["evaluate", *files, *right], sources),
        (["score", *files, *right], sources + answers),
        (["generate", "--prompt", "a zebra"], "--prompt: unknown words (1): 'zebra'\n"),
        (["generate", "--prompt", "a i"], ""),
    ):
        assert main([words[0], str(run_dir), *words[1:]]) == 0
        assert capsys.readouterr().err == said


def test_a_tokenizer_without_an_unknown_token_refuses_the_line(of_words, capsys):
    run_dir, folder = of_words("tokenizer=word", "tokenizer.unknown=error")
    capsys.readouterr()
    assert main(["generate", str(run_dir), "--input", f"{folder}/in.txt"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("--input, line 2: ")
    assert "'zebra'" in err and err.count("\n") == 1
    assert main(["generate", str(run_dir), "--prompt", "zebra"]) == 2
    assert "--prompt: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("generate RUN --input IN --beam 0", "--beam: must be at least 1; got 0."),
        ("evaluate RUN --input IN --reference IN --beam 0", "--beam: must be at least 1; got 0."),
        (
            "evaluate RUN --beam 4",
            "--beam: has no effect on the validation split, without --input FILE. Leave it out.",
        ),
        (
            "generate RUN --input IN --length-penalty 2",
            (
                "--length-penalty: is of a beam search; got 2.0 and one beam. Add --beam 4, or"
                " leave it out."
            ),
        ),
        (
            "evaluate RUN --input IN --reference IN --beam 2 --length-penalty nan",
            "--length-penalty: must be a finite number; got nan.",
        ),
        (
            "generate RUN --input IN --seed 3",
            "--seed: is for texts that are drawn; got 3. Add --temperature 1, or leave it out.",
        ),
        (
            "generate RUN --input IN --beam 100000",
            "--beam: must be at most 1,000; got 100000.",
        ),
        (
            "generate RUN --input IN --output /no/such/place",
            "--output: must be a file that can be written; got /no/such/place.",
        ),
    ],
)
def test_bad_options_of_answers_are_one_sentence(trained, capsys, words, said):
    names = {"RUN": f"{trained}/run", "IN": f"{trained}/in.txt"}
    capsys.readouterr()
    assert main([names.get(word, word) for word in words.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{said}\n")


def test_lines_are_read_as_a_corpus_reads_them(trained, tmp_path):
    from tasks.generation.translation import read_lines

    (tmp_path / "windows.txt").write_bytes(b"\xef\xbb\xbfone two\r\nthree\rfour\r\n")
    assert read_lines(str(tmp_path / "windows.txt"), "--input") == ["one two", "three\rfour"]
    (tmp_path / "binary").write_bytes(b"a\0b")
    with pytest.raises(
        ConfigError, match=r"--input: must be utf-8 text; got .* with byte 0x00 at position 1\."
    ):
        read_lines(str(tmp_path / "binary"), "--input")
