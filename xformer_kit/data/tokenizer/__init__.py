"""Tokenizers: text to token ids and back, each saved in one file."""

from xformer_kit.data.tokenizer.base import TOKENIZERS, Stream, Tokenizer
from xformer_kit.data.tokenizer.learned import BPE, Unigram, WordPiece
from xformer_kit.data.tokenizer.pretrained import Pretrained
from xformer_kit.data.tokenizer.saved import load_tokenizer
from xformer_kit.data.tokenizer.simple import Byte, Char, Word
from xformer_kit.data.tokenizer.texts import whole_words

__all__ = [
    "BPE",
    "TOKENIZERS",
    "Byte",
    "Char",
    "Pretrained",
    "Stream",
    "Tokenizer",
    "Unigram",
    "Word",
    "WordPiece",
    "load_tokenizer",
    "whole_words",
]
