"""The model that lm-eval calls, compared with the logits, and with lm-eval's own `HFLM`."""

import json
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tasks.cli.command import load_run
from tasks.generation.decoding import LoadedRun
from xformer_kit import build, compose
from xformer_kit.data.tokenizer import TOKENIZERS
from xformer_kit.export import save_published
from xformer_kit.objective import objective_of

harness_model = pytest.importorskip(
    "tasks.evaluation.harness_model", reason='needs pip install "xformer_kit[eval]"'
)
HarnessModel = harness_model.HarnessModel

MAX_LEN = 24  # tokens
SMALL = ["model.dim=24", "model.layers=2", "attn.heads=4", f"data.seq_len={MAX_LEN}"]
TEXT = "the quick brown fox jumps over the lazy dog while a slow cat sat on the mat "


def requests(*arguments):
    return [SimpleNamespace(args=one) for one in arguments]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model of random weights with a tokenizer of bytes, which has no special tokens."""
    config = compose([*SMALL, "position=learned", f"model.max_len={MAX_LEN}"], data=False)
    torch.manual_seed(0)
    model = build(config, vocab_size=256).eval()
    model.tokenizer = TOKENIZERS.create({"name": "byte"})
    objective = objective_of(config)
    objective.tokenizer = model.tokenizer
    folder = tmp_path_factory.mktemp("run")
    return LoadedRun(model, objective, config, folder, "last", None)


@torch.no_grad()
def log_p(run, context, answer):
    """log p of bytes after a context, of one text without a batch, and whether it is greedy."""
    ids = torch.tensor([list((context + answer).encode())])[:, -(MAX_LEN + 1) :]
    scores = run.model(ids[:, :-1]).double().log_softmax(-1)[0]
    rows = scores[-len(answer) :]
    targets = ids[0, -len(answer) :]
    greedy = bool((rows.argmax(-1) == targets).all())
    return float(rows.gather(1, targets[:, None]).sum()), greedy


@pytest.mark.parametrize("batch_size", [1, 3])
def test_likelihoods_are_those_of_the_logits(run, batch_size):
    """Of texts of several lengths in a batch, texts that are cut from the left, and equal inputs
    with other answers.
    """
    pairs = [("the cat", " sat"), ("a" * 40, "bcd"), ("x", "y"), ("x", "z"), ("the cat", "s")]
    found = HarnessModel(run, batch_size, MAX_LEN).loglikelihood(requests(*pairs))
    for (score, greedy), pair in zip(found, pairs, strict=True):
        expected, expected_greedy = log_p(run, *pair)
        assert score == pytest.approx(expected, rel=1e-5)
        assert greedy is expected_greedy


def test_the_likeliest_byte_is_the_greedy_answer(run):
    pairs = [("the cat", chr(i)) for i in range(128)]
    found = HarnessModel(run, 2, MAX_LEN).loglikelihood(requests(*pairs))
    greedy = int(run.model(torch.tensor([list(b"the cat")]))[0, -1].argmax())
    assert [i for i, (_, is_greedy) in enumerate(found) if is_greedy] == [greedy] * (greedy < 128)


def test_spaces_at_the_end_of_a_context_belong_to_the_answer(run):
    model = HarnessModel(run, 2, MAX_LEN)
    one, two = model.loglikelihood(requests(("the cat ", "sat"), ("the cat", " sat")))
    assert one == two


def test_without_a_token_before_a_text_its_first_token_is_given(run):
    found = HarnessModel(run, 2, MAX_LEN).loglikelihood(requests(("", "cat"), ("", "c")))
    assert found[0][0] == pytest.approx(log_p(run, "c", "at")[0], rel=1e-5)
    assert found[1] == (0.0, True)


def test_a_long_text_is_the_sum_of_windows(run):
    """60 bytes, of which the first is given: two windows of 24 predictions, and one of 11 that
    begins earlier.
    """
    text = (TEXT * 2)[:60]
    (found,) = HarnessModel(run, 2, MAX_LEN).loglikelihood_rolling(requests((text,)))
    windows = [(text[0], text[1:25]), (text[24], text[25:49]), (text[35:49], text[49:])]
    assert found == pytest.approx(sum(log_p(run, *pair)[0] for pair in windows), rel=1e-5)


def test_an_answer_ends_before_the_first_stop_text(run):
    options = {"until": [], "max_gen_toks": 9, "do_sample": False}
    model = HarnessModel(run, 2, MAX_LEN)
    contexts = ("the cat", "a dog on")
    texts = model.generate_until(requests(*((context, options) for context in contexts)))
    for context, text in zip(contexts, texts, strict=True):
        ids = run.model.generate(
            torch.tensor([list(context.encode())]), max_new_tokens=9, temperature=0.0
        )
        assert text == run.objective.tokenizer.decode(ids[0, len(context) :])
    until = texts[0][3:5]
    stopped = model.generate_until(requests((contexts[0], {**options, "until": [until]})))
    assert stopped == [texts[0].partition(until)[0]]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The directory of a small Llama, whose tokenizer puts <s> before each text."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("llama")
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet
    )
    library.train_from_iterator([TEXT] * 9, trainer)
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    size = library.get_vocab_size()
    words = ["preset=llama3", *SMALL, f"model.max_len={MAX_LEN}", f"model.vocab_size={size}"]
    config = compose(words, data=False)
    torch.manual_seed(0)
    save_published(folder, build(config), config)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, bos_token="<s>", eos_token="</s>"
    )
    tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"bos_token_id": 0, "eos_token_id": 1}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.extended
def test_results_are_those_of_the_model_of_lm_eval(published, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    from lm_eval.models.huggingface import HFLM

    theirs = HFLM(pretrained=str(published), device="cpu", dtype="float32", batch_size=2)
    args = SimpleNamespace(run=str(published), components=[], checkpoint=None)
    loaded = load_run(args)
    ours = HarnessModel(loaded, 2, loaded.config["model"]["max_len"])
    assert (ours.max_length, ours.prefix_token_id) == (theirs.max_length, theirs.prefix_token_id)
    pairs = [("the quick", " brown fox"), (TEXT, "a cat"), ("", "the mat"), ("a dog ", "sat")]
    for one, two in zip(
        ours.loglikelihood(requests(*pairs)),
        theirs.loglikelihood(requests(*pairs), disable_tqdm=True),
        strict=True,
    ):
        assert one[0] == pytest.approx(two[0], rel=1e-5) and one[1] == two[1]
    texts = [(TEXT * 3,), ("the",), (TEXT[:40],)]
    rolling = [m.loglikelihood_rolling(requests(*texts), disable_tqdm=True) for m in (ours, theirs)]
    assert rolling[0] == pytest.approx(rolling[1], rel=1e-5)
    options = {"until": ["fox"], "max_gen_toks": 8, "do_sample": False}
    asked = [(context, options) for context in ("the quick", "a slow cat sat", TEXT)]
    answers = [m.generate_until(requests(*asked), disable_tqdm=True) for m in (ours, theirs)]
    assert answers[0] == answers[1]
