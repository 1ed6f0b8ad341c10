"""What a run says before it trains."""


def test_a_text_that_gives_fewer_tokens_than_asked_for_is_said(begin):
    code, folder = begin("few", "trainer.max_steps=1", "tokenizer=bpe", "tokenizer.vocab_size=5000")
    assert code == 0
    [line] = [line for line in (folder / "train.log").read_text().splitlines() if "tokenizer.vocab_size" in line]
    assert "tokenizer.vocab_size: 5,000 tokens were asked for, and the text gave " in line


def test_nothing_is_said_where_all_are_learned(begin):
    code, folder = begin("all", "trainer.max_steps=1", "tokenizer=bpe", "tokenizer.vocab_size=260")
    assert code == 0
    assert "asked for" not in (folder / "train.log").read_text()
