"""Laws of any tokenizer.json: no text is encoded to a special token, and a text has its bytes."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.tokenizer.generated_files import FALLBACK, TEXT, tokenizer_files
from xformer_kit.data.tokenizer import Pretrained
from xformer_kit.registry import ConfigError


@pytest.mark.extended
@given(file=tokenizer_files(), texts=st.lists(TEXT, min_size=3, max_size=6))
@settings(deadline=None, max_examples=150)
def test_a_text_has_its_bytes_and_no_special_tokens(file, texts):
    tokenizer = Pretrained.read(file, Path("tokenizer.json"))
    data = json.loads(file)
    special = {token["content"] for token in data["added_tokens"] if token["special"]}
    special -= {"<unk>", *FALLBACK}
    if "ByteLevel" in file:
        special -= {name for name in special if len(name) == 1}  # a byte
    for text in texts:
        try:
            encoding = tokenizer.encoding(text)
        except ConfigError:
            continue  # a model without a token for unknown text
        ids = encoding.ids
        assert ids.tolist() == tokenizer.encode(text).tolist()
        assert not special & {tokenizer.library.id_to_token(i) for i in ids}
        assert encoding.bytes == len(text.encode()) and encoding.sizes.min(initial=0) >= 0
        assert encoding.sizes.sum() == (encoding.bytes if len(ids) else 0)
        decoded = tokenizer.decode(ids)
        stream = tokenizer.stream()
        assert "".join([stream(i) for i in ids]) + stream.end() == decoded
        assert encoding.dropped == 0 or decoded != text
