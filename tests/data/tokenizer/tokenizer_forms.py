"""Small tokenizers of the published forms, trained on a few lines by the library."""

import json

PROSE = "The quick brown fox; it doesn't stop.\n    Naïve café, 1234 times!  \n" * 30


def built(form):
    """A tokenizer of a published form: normaliser, pre-tokenizer, model and decoder."""
    from tokenizers import AddedToken, processors

    if form in ("llama", "gemma"):
        return _llama(prefix=form == "llama")
    tokenizer, trainer = {
        "gpt2": _bytes,
        "roberta_prefix": lambda: _bytes(space=True),
        "t5": _t5,
        "bert": _bert,
        "suffix": _suffix,
        "words": _words,
    }[form]()
    tokenizer.train_from_iterator([PROSE], trainer)
    if form == "gpt2":
        tokenizer.add_tokens([AddedToken("    ", normalized=False)])
        tokenizer.enable_truncation(8)
        tokenizer.enable_padding(length=16)
    if form == "bert":
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def _bytes(space=False):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    level = pre_tokenizers.ByteLevel
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = level(add_prefix_space=space), decoders.ByteLevel()
    return tokenizer, trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=sorted(level.alphabet()),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )


def _llama(prefix=True):
    """The trainer needs a pre-tokenizer, the model has none: trained with one, rebuilt without.

    Gemma's has no `prefix`: no space is put in front of a text, and none is stripped.
    """
    from tokenizers import (
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    space, rules = "\u2581", {"unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True}
    trained = Tokenizer(models.BPE(**rules))
    put = [normalizers.Prepend(space)] * prefix
    trained.normalizer = normalizers.Sequence([*put, normalizers.Replace(" ", space)])
    trained.pre_tokenizer = pre_tokenizers.Split(space, "merged_with_next")
    names = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=names, show_progress=False, max_token_length=8
    )
    trained.train_from_iterator([PROSE], trainer)
    tokenizer = Tokenizer(models.BPE(trained.get_vocab(), _merges(trained), **rules))
    tokenizer.normalizer = trained.normalizer
    strip = [decoders.Strip(" ", 1, 0)] * prefix
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(space, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>"])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def _t5():
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Replace("  ", " ")
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=200,
        unk_token="<unk>",
        special_tokens=["<pad>", "</s>", "<unk>"],
        show_progress=False,
    )


def _bert():
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer, trainers.WordPieceTrainer(
        vocab_size=120,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False,
    )


def _suffix():
    """BPE with a suffix at the ends of words (Sennrich et al., 2016, arXiv:1508.07909)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    end = {"end_of_word_suffix": "</w>"}
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **end))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Whitespace(), decoders.BPEDecoder()
    return tokenizer, trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<unk>", "</s>"], show_progress=False, **end
    )


def _words():
    """Whole words, without a decoder."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer, trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False)


def _merges(tokenizer):
    return [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]


FORMS = ["gpt2", "roberta_prefix", "llama", "gemma", "t5", "bert", "suffix", "words"]
BYTES = ["gpt2", "roberta_prefix", "llama", "gemma"]
SPELLED = ("llama", "gemma")  # their sign for a space cannot be text
