"""How does text become numbers? Tokenizers, each with its file."""

from xformer_kit.data.tokenizer.base import TOKENIZERS, Stream, Tokenizer, load_tokenizer
from xformer_kit.data.tokenizer.library import BPE, whole_words
from xformer_kit.data.tokenizer.simple import Byte, Char
from xformer_kit.data.tokenizer.words import Words

__all__ = ["BPE", "TOKENIZERS", "Byte", "Char", "Stream", "Tokenizer", "Words", "load_tokenizer", "whole_words"]
