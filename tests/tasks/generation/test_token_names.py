"""Names of tokens in pictures of attention."""

import torch

from tasks.generation.attention_picture import token_names
from xformer_kit.data.tokenizer import Tokenizer
from xformer_kit.tensors.tokens import Tokens


class Letters(Tokenizer):
    """A tokenizer of two letters and one special token."""

    vocab_size = 2
    specials = ("<mask>",)

    def pieces(self):
        return [b"a", b"b"]


def test_special_tokens_and_those_in_front_of_a_text_have_names():
    ids = torch.tensor([[1, 2, 0]])
    position = torch.arange(3)[None]
    tokens = Tokens(ids=ids, slot=position, position=position).with_front(2)
    assert token_names(tokens, Letters()) == ["front", "front", "b", "<mask>", "a"]
    assert token_names(tokens, Letters(), 3) == ["front", "front", "b"]
