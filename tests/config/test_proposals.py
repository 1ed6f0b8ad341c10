"""What is proposed for a word that a config does not know: its nearest name, option or answer."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xformer_kit.config import preflight
from xformer_kit.config.options.groups import GROUPS, NESTED_GROUPS
from xformer_kit.registry import ConfigError
from xformer_kit.registry.messages import nearest
from xformer_kit.registry.other_libraries import OTHER_OPTIONS

HEADS = (
    "It has: heads, kv_heads, head_dim, v_head_dim, bias, qk_norm, v_norm, clip, clip_normed, gate,"
    " scale, score, dropout, keys."
)
NORM = "and the norms here only the channels of one token. Try layer or rms."
PUBLISHED = "a published architecture is a preset (docs/guide/published_models.md)"
SHAKESPEARE = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)


def known(group, kind, word, proposal):
    names = ", ".join(sorted(GROUPS[group]))
    return f"{group}: no {kind} is called '{word}'. Did you mean '{proposal}'? Known: {names}."


MESSAGES = {
    "position=ropee": known("position", "position", "ropee", "rope"),
    "position=rop": known("position", "position", "rop", "rope"),
    "ffn=swigl": known("ffn", "ffn", "swigl", "swiglu"),
    "ffn=feedforward": known("ffn", "ffn", "feedforward", "feed_forward"),
    "attn=gqaa": known("attn", "attn", "gqaa", "gqa"),
    "attn=self": known("attn", "attn", "self", "multi_head"),
    "mask=windowed": known("mask", "mask", "windowed", "window"),
    "optim=adma": known("optim", "optim", "adma", "adam"),
    "norm=batchnorm": f"norm: 'batchnorm' uses other tokens, {NORM}",
    "model.decoder.norm=BatchNorm": f"model.decoder.norm: 'batchnorm' uses other tokens, {NORM}",
    "experiment=gpt2": f"experiment: no experiment is called 'gpt2'; {PUBLISHED}. Try preset=gpt2.",
    "experiment=bert": f"experiment: no experiment is called 'bert'; {PUBLISHED}. Try"
    " preset=bert task=masked_language_modeling.",
    "position.partial_rotary_factor=0.5": "position.partial_rotary_factor: is called"
    " position.fraction here; got 0.5. Try position.fraction=0.5.",
    "attn.softcap=50": f"attn.softcap: attn 'multi_head' has no option 'softcap'. {HEADS} Try"
    " attn.score.softcap=50.",
    "attn.logit_softcap=50": "attn.logit_softcap: is called attn.score.softcap here; got 50. Try"
    " attn.score.softcap=50.",
    "~logger": "logger: a run needs one; it cannot be taken out. Name another.",
    "~norm": "norm: a run needs one; it cannot be taken out. Name another.",
    "~model": "model: a run needs one; it cannot be taken out. Name another.",
    "min_epochs=3": "min_epochs: is decided by trainer.max_steps, which every run reaches here; got"
    " 3. Leave it out.",
    "warmup_ratio=0.1": "warmup_ratio: is called schedule.warmup here; got 0.1. Try"
    " schedule.warmup=0.1.",
    "tags=[a]": "tags: the config has no such key. Try 'logger.tags=[a]'.",
    "data=tinyshakespeare": "data: 'tinyshakespeare' is a text file, which no command here"
    f" downloads. Get {SHAKESPEARE}, and give it as data=text data.path=FILE.",
    "data=TinyStories": "data: 'tinystories' is a data set of the hub, which the library datasets"
    " downloads. Try data=hub data.dataset=roneneldan/TinyStories data.text=text"
    " data.valid_split=validation.",
    "data=x.csv": "data: no corpus is called 'x.csv'. Try data=csv data.path=x.csv.",
}


def faults_of(*words):
    with pytest.raises(ConfigError) as error:
        preflight([*words])
    return "\n".join(map(str, error.value.faults))


@pytest.mark.parametrize("word", MESSAGES)
def test_the_whole_message(word):
    assert faults_of(word) == MESSAGES[word]


def test_a_key_of_another_library_in_a_file_has_the_answer_of_the_line(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("tags: [a]\nmin_epochs: 3\nwarmup_ratio: 0.1\n")
    words = ("tags=[a]", "min_epochs=3", "warmup_ratio=0.1")
    assert faults_of(f"experiment={file}").splitlines() == [MESSAGES[word] for word in words]


@pytest.mark.parametrize("word", ["gpt", "mamba", "pope", "reformer", "onecycle"])
def test_a_name_that_only_shares_letters_is_not_proposed(word):
    names = {"gpt": "ngpt", "mamba": "lambda", "pope": "rope", "reformer": "performer"}
    assert nearest(word, [names.get(word, "cosine"), "none"]) is None


NAMES = sorted(
    {
        name
        for registry in (GROUPS | NESTED_GROUPS).values()
        for name in (*registry, *registry.also_called)
        if len(name) > 4
    }
    | {name for name in OTHER_OPTIONS if len(name) > 2}
)


@given(st.sampled_from(NAMES), st.data())
def test_one_wrong_letter_after_the_first_still_proposes_the_name(name, data):
    """A letter that is left out, doubled, changed, or swapped with the next one."""
    at = data.draw(st.integers(1, len(name) - 1))
    letter = data.draw(st.sampled_from(string.ascii_lowercase))
    typed = data.draw(
        st.sampled_from(
            [
                name[:at] + name[at + 1 :],
                name[:at] + name[at] + name[at:],
                name[:at] + letter + name[at + 1 :],
                name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :],
            ]
        )
    )
    assert nearest(typed, [name]) == name
    assert nearest(name[: 1 + 2 * len(name) // 3], [name]) == name


@pytest.mark.extended
def test_a_number_of_5000_digits_is_one_sentence_in_a_line_and_in_a_file(tmp_path):
    number = 5000 * "1"
    for word in (f"seed={number}", f"model={{dim: {number}}}", f"optim.betas=[{number},1]"):
        assert faults_of(word).startswith(
            f"{word[:80]}...: cannot be read as key=value: Exceeds the limit (4300 digits)"
        )
    (tmp_path / "experiment").mkdir()
    file = tmp_path / "experiment" / "mine.yaml"
    file.write_text(f"# @package _global_\nseed: {number}\n")
    for words in ([f"experiment={file}"], ["--config-dir", str(tmp_path), "experiment=mine"]):
        assert faults_of(*words).startswith(
            f"{file}: cannot be read: Exceeds the limit (4300 digits)"
        )
